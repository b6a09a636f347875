// The server answers queries. The client asks what a query would give and which tables there are, and sends a query
// with headers and a deadline. The two sides could as well be two processes.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
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
	if err := server.SetHandler(&dipc.Handler{Get: query, Describe: describe}); err != nil {
		return err
	}
	if err := server.Publish("empty", schema); err != nil {
		return err
	}
	uri, err := server.Listen("tcp://127.0.0.1:0")
	if err != nil {
		return err
	}
	return ask(uri)
}

// query is called for each ticket that the server was not given.
func query(ctx context.Context, ticket string) (array.RecordReader, error) {
	if user := dipc.RequestHeaders(ctx).Get("user"); user != "ada" {
		return nil, fmt.Errorf("user %q: %w", user, dipc.ErrPermission)
	}
	rows, err := parse(ticket)
	if err != nil {
		return nil, err
	}
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer builder.Release()
	for n := range rows {
		builder.Field(0).(*array.Int64Builder).Append(n)
	}
	batch := builder.NewRecordBatch()
	defer batch.Release()
	_, limited := ctx.Deadline()
	headers := dipc.Headers{"limited": {strconv.FormatBool(limited)}}
	if err := dipc.AddHeaders(ctx, headers); err != nil {
		return nil, err
	}
	return array.NewRecordReader(schema, []arrow.RecordBatch{batch})
}

// describe is called for the same tickets, by clients that want to know before they fetch.
func describe(_ context.Context, ticket string) (*dipc.Description, error) {
	rows, err := parse(ticket)
	if err != nil {
		return nil, err
	}
	return &dipc.Description{Schema: schema, Rows: dipc.Known(uint64(rows))}, nil
}

func parse(ticket string) (rows int64, err error) {
	if _, err := fmt.Sscanf(ticket, "first %d", &rows); err != nil || rows < 0 {
		return 0, fmt.Errorf("no query %q: %w", ticket, dipc.ErrNotFound)
	}
	return rows, nil
}

func ask(uri string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	description, err := dipc.Describe(ctx, uri, "first 3")
	if err != nil {
		return err
	}
	fmt.Println("rows:", description.Rows, "bytes:", description.Bytes)

	listing, err := dipc.List(ctx, uri, "e")
	if err != nil {
		return err
	}
	for _, endpoint := range listing.Endpoints {
		fmt.Println("table:", endpoint.Ticket, "rows:", endpoint.Rows)
	}

	reader, err := dipc.Get(ctx, uri, "first 3", dipc.WithHeaders(dipc.Headers{"user": {"ada"}}))
	if err != nil {
		return err
	}
	defer reader.Release()
	headers, err := reader.Headers()
	if err != nil {
		return err
	}
	fmt.Println("limited:", headers.Get("limited"))
	for reader.Next() {
		fmt.Println(reader.RecordBatch().Column(0))
	}
	return reader.Err()
}
