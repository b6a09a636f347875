// Takes tables and sends one: the server's program says how much of it is safe, and in the end that it
// has all of it. The two sides could as well be two processes.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
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
	if err := server.SetHandler(&dipc.Handler{Put: take}); err != nil {
		return err
	}
	uri, err := server.Listen(fmt.Sprintf("shm:@dipc-go-put-%d", os.Getpid()))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return send(ctx, uri)
}

// take is called once for each table. Until Accept the client sends none of it, so a schema that does
// not fit is refused early. An error, also a later one, is the client's error.
func take(ctx context.Context, descriptor string, source *dipc.Source) error {
	given, err := source.Schema()
	if err != nil {
		return err
	}
	if !fits(given) {
		return fmt.Errorf("%s has the columns %v, and not %v: %w",
			descriptor, given.Fields(), schema.Fields(), dipc.ErrInvalidData)
	}
	table, err := source.Accept(ctx)
	if err != nil {
		return err
	}
	defer table.Release()
	var batches uint64
	for table.Next() {
		batches++
		word := fmt.Sprintf("%s has %d rows more", descriptor, table.RecordBatch().NumRows())
		if err := source.Result(batches, []byte(word)); err != nil {
			return err
		}
	}
	return table.Err()
}

// fits compares the names and the types of the columns. Schema.Equal would also compare which columns may have nulls,
// and most libraries mark every column so.
func fits(given *arrow.Schema) bool {
	return slices.EqualFunc(given.Fields(), schema.Fields(), func(a, b arrow.Field) bool {
		return a.Name == b.Name && arrow.TypeEqual(a.Type, b.Type)
	})
}

func send(ctx context.Context, uri string) error {
	arena, err := dipc.NewArena()
	if err != nil {
		return err
	}
	defer arena.Close()
	table, err := dipc.Put(ctx, uri, "numbers", schema)
	if err != nil {
		return err
	}
	defer table.Close()
	for n := range 3 {
		builder := array.NewRecordBuilder(arena, schema)
		builder.Field(0).(*array.Int64Builder).AppendValues(make([]int64, 1000*(n+1)), nil)
		batch := builder.NewRecordBatch()
		err := table.Write(ctx, batch)
		batch.Release()
		builder.Release()
		if err != nil {
			return err
		}
	}
	taken, err := table.Finish(ctx)
	if err != nil {
		return err
	}
	for {
		result, err := table.NextResult(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		fmt.Printf("%d: %s\n", result.Batches, result.Bytes)
	}
	stats, err := table.Stats()
	fmt.Println("batches:", taken, "bytes copied:", stats.BytesCopied)
	return err
}
