// Serves in the pull form, and reads the streams. Each stream has a goroutine on both sides, and none of them occupies
// a thread of the system while it waits.
package main

import (
	"context"
	"fmt"
	"os"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

const streams = 100

var schema = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	// An eighth of the places is not for clients over tcp.
	server, err := dipc.NewServer(dipc.WithMaxStreams(2 * streams))
	if err != nil {
		return err
	}
	defer server.Close()
	if err := server.ServePull("numbers"); err != nil {
		return err
	}
	uri, err := server.Listen("tcp://127.0.0.1:0")
	if err != nil {
		return err
	}
	go serve(ctx, server)

	sums, failures := make(chan int64, streams), make(chan error, streams)
	for range streams {
		go func() {
			sum, err := read(ctx, uri)
			sums <- sum
			failures <- err
		}()
	}
	var total int64
	for range streams {
		if err := <-failures; err != nil {
			return err
		}
		total += <-sums
	}
	fmt.Println("streams:", streams, "sum:", total)
	return nil
}

// serve answers requests until the server is closed.
func serve(ctx context.Context, server *dipc.Server) {
	for {
		request, err := server.NextRequest(ctx)
		if err != nil {
			return
		}
		go func() {
			defer request.Close()
			if err := answer(request); err != nil {
				request.Fail(err)
			}
		}()
	}
}

// answer sends ten batches. Its context ends when the client has gone.
func answer(request *dipc.Request) error {
	if request.Verb != dipc.VerbGet {
		return dipc.ErrUnsupported
	}
	ctx := request.Context()
	if err := request.Start(schema); err != nil {
		return err
	}
	for n := range 10 {
		batch := numbers(n)
		err := request.Push(ctx, batch)
		batch.Release()
		if err != nil {
			return err
		}
	}
	return request.Finish(ctx)
}

func numbers(n int) arrow.RecordBatch {
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer builder.Release()
	builder.Field(0).(*array.Int64Builder).AppendValues([]int64{int64(n), int64(n)}, nil)
	return builder.NewRecordBatch()
}

func read(ctx context.Context, uri string) (sum int64, err error) {
	reader, err := dipc.Get(ctx, uri, "numbers")
	if err != nil {
		return 0, err
	}
	defer reader.Release()
	for reader.Next() {
		for _, n := range reader.RecordBatch().Column(0).(*array.Int64).Int64Values() {
			sum += n
		}
	}
	return sum, reader.Err()
}
