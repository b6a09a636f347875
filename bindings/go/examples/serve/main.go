// Serves two tables until it is interrupted: prices, which lie in memory that is lent without a copy,
// and countdown, which is made anew for each client.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintf(os.Stderr, "usage: %s URI\n", os.Args[0])
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, address string) error {
	server, err := dipc.NewServer()
	if err != nil {
		return err
	}
	defer server.Close()
	arena, err := dipc.NewArena()
	if err != nil {
		return err
	}
	defer arena.Close()

	schema := arrow.NewSchema([]arrow.Field{
		{Name: "item", Type: arrow.BinaryTypes.String},
		{Name: "price", Type: arrow.PrimitiveTypes.Float64},
	}, nil)
	builder := array.NewRecordBuilder(arena, schema)
	defer builder.Release()
	builder.Field(0).(*array.StringBuilder).AppendValues([]string{"tea", "coffee"}, nil)
	builder.Field(1).(*array.Float64Builder).AppendValues([]float64{2.5, 3.25}, nil)
	prices := builder.NewRecordBatch()
	defer prices.Release()

	if err := server.Publish("prices", schema, prices); err != nil {
		return err
	}
	if err := server.Serve("countdown", countdown); err != nil {
		return err
	}
	uri, err := server.Listen(address)
	if err != nil {
		return err
	}
	fmt.Println(uri)
	<-ctx.Done()
	return nil
}

// countdown is called once for each client. An error or a panic here is the client's error.
func countdown(_ context.Context, _ string) (array.RecordReader, error) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "left", Type: arrow.PrimitiveTypes.Int32}}, nil)
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer builder.Release()
	builder.Field(0).(*array.Int32Builder).AppendValues([]int32{3, 2, 1}, nil)
	batch := builder.NewRecordBatch()
	defer batch.Release()
	return array.NewRecordReader(schema, []arrow.RecordBatch{batch})
}
