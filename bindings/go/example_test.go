package dipc_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// A table is served and fetched. Two processes would do the same.
func Example() {
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	builder := array.NewInt64Builder(memory.DefaultAllocator)
	defer builder.Release()
	builder.AppendValues([]int64{1, 2, 3}, nil)
	column := builder.NewInt64Array()
	defer column.Release()
	batch := array.NewRecordBatch(schema, []arrow.Array{column}, 3)
	defer batch.Release()

	server, err := dipc.NewServer()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	if err := server.Publish("numbers", schema, batch); err != nil {
		log.Fatal(err)
	}
	uri, err := server.Listen("shm:@go-example")
	if err != nil {
		log.Fatal(err)
	}

	reader, err := dipc.Get(context.Background(), uri, "numbers")
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Release()
	for reader.Next() {
		fmt.Println(reader.RecordBatch().Column(0))
	}
	fmt.Println(reader.Err())
	// Output:
	// [1 2 3]
	// <nil>
}

// A provider is called for each stream. What it returns as an error is what the client gets.
func ExampleServer_Serve() {
	server, err := dipc.NewServer()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	err = server.Serve("report", func(ctx context.Context, ticket string) (array.RecordReader, error) {
		return nil, fmt.Errorf("the %s is not written yet: %w", ticket, dipc.ErrBusy)
	})
	if err != nil {
		log.Fatal(err)
	}
	uri, err := server.Listen("shm:@go-example-serve")
	if err != nil {
		log.Fatal(err)
	}

	_, err = dipc.Get(context.Background(), uri, "report")
	fmt.Println(err)
	fmt.Println(errors.Is(err, dipc.ErrBusy))
	// Output:
	// dipc: the server: the report is not written yet: dipc: busy
	// true
}

// A handler serves tickets that the server was not given, and says what they stand for.
func ExampleServer_SetHandler() {
	server, err := dipc.NewServer()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	err = server.SetHandler(&dipc.Handler{
		Get: func(ctx context.Context, ticket string) (array.RecordReader, error) {
			return nil, fmt.Errorf("%s may not ask %q: %w", dipc.RequestHeaders(ctx).Get("user"), ticket, dipc.ErrPermission)
		},
		Describe: func(context.Context, string) (*dipc.Description, error) {
			return &dipc.Description{Rows: dipc.Known(3)}, nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	uri, err := server.Listen("shm:@go-example-handler")
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	description, err := dipc.Describe(ctx, uri, "select 1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(description.Rows, description.Batches)
	_, err = dipc.Get(ctx, uri, "select 1", dipc.WithHeaders(dipc.Headers{"user": {"ada"}}))
	fmt.Println(err)
	// Output:
	// 3 unknown
	// dipc: the server: ada may not ask "select 1": dipc: permission
}

// An arena is an allocator of arrow-go whose memory is lent to clients where it lies.
func ExampleArena() {
	arena, err := dipc.NewArena(dipc.WithArenaMaxBytes(1 << 30))
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Close()
	builder := array.NewFloat64Builder(arena)
	defer builder.Release()
	builder.AppendValues([]float64{0.5, 1.5}, nil)
	column := builder.NewFloat64Array()
	defer column.Release()
	fmt.Println(column)
	// Output: [0.5 1.5]
}

// The context ends the stream at any moment.
func ExampleGet_cancel() {
	server, err := dipc.NewServer()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	if err := server.Serve("endless", provide(func() array.RecordReader { return endless() })); err != nil {
		log.Fatal(err)
	}
	uri, err := server.Listen("shm:@go-example-cancel")
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	reader, err := dipc.Get(ctx, uri, "endless")
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Release()
	fmt.Println(reader.Next())
	cancel()
	fmt.Println(reader.Next(), errors.Is(reader.Err(), context.Canceled), errors.Is(reader.Err(), dipc.ErrCancelled))
	// Output:
	// true
	// false true true
}
