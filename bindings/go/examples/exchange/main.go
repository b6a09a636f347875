// Sends a table and receives the answer at once: the server keeps the rows of at least 10. The two
// sides could as well be two processes.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

var schema = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	server, err := dipc.NewServer()
	if err != nil {
		return err
	}
	defer server.Close()
	if err := server.SetHandler(&dipc.Handler{Exchange: large}); err != nil {
		return err
	}
	uri, err := server.Listen(fmt.Sprintf("shm:@dipc-go-exchange-%d", os.Getpid()))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	writer, reader, err := dipc.Exchange(ctx, uri, "large", schema)
	if err != nil {
		return err
	}
	defer writer.Close()
	defer reader.Release()
	written := make(chan error, 1)
	go func() { written <- send(ctx, writer) }()
	sum, rows := int64(0), 0
	for reader.Next() {
		numbers := reader.RecordBatch().Column(0).(*array.Int64).Int64Values()
		for _, n := range numbers {
			sum += n
		}
		rows += len(numbers)
	}
	if err := reader.Err(); err != nil {
		return err
	}
	fmt.Println("rows:", rows, "sum:", sum)
	return <-written
}

// large opens the answer. For each batch of the answer it reads one batch of the client.
func large(ctx context.Context, _ string, source *dipc.Source) (array.RecordReader, error) {
	table, err := source.Accept(ctx)
	if err != nil {
		return nil, err
	}
	answer := func(yield func(arrow.RecordBatch, error) bool) {
		defer table.Release()
		for table.Next() {
			if !yield(batchOf(keep(table.RecordBatch())), nil) {
				return
			}
		}
		if err := table.Err(); err != nil {
			yield(nil, err)
		}
	}
	return array.ReaderFromIter(schema, answer), nil
}

func keep(batch arrow.RecordBatch) []int64 {
	var kept []int64
	for _, n := range batch.Column(0).(*array.Int64).Int64Values() {
		if n >= 10 {
			kept = append(kept, n)
		}
	}
	return kept
}

func send(ctx context.Context, writer *dipc.Writer) error {
	for _, numbers := range [][]int64{{1, 10, 100}, {2, 3}, {20, 30}} {
		batch := batchOf(numbers)
		err := writer.Write(ctx, batch)
		batch.Release()
		if err != nil {
			return err
		}
	}
	_, err := writer.Finish(ctx)
	return err
}

func batchOf(numbers []int64) arrow.RecordBatch {
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer builder.Release()
	builder.Field(0).(*array.Int64Builder).AppendValues(numbers, nil)
	return builder.NewRecordBatch()
}
