// Fetches a table and prints it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	dipc "github.com/libdipc/libdipc/bindings/go"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintf(os.Stderr, "usage: %s URI TICKET\n", os.Args[0])
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := get(ctx, os.Args[1], os.Args[2])
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "interrupted")
	case errors.Is(err, dipc.ErrNotFound):
		fmt.Fprintln(os.Stderr, "no such table:", err)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil {
		os.Exit(1)
	}
}

func get(ctx context.Context, uri, ticket string) error {
	reader, err := dipc.Get(ctx, uri, ticket)
	if err != nil {
		return err
	}
	defer reader.Release()
	for reader.Next() {
		batch := reader.RecordBatch()
		for i, column := range batch.Columns() {
			fmt.Println(batch.ColumnName(i), column)
		}
	}
	return reader.Err()
}
