package main

import (
	"context"
	"errors"
	"fmt"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow/array"
)

// handler takes any table and serves it from then on, and gives that of an exchange back.
func handler(server *dipc.Server) *dipc.Handler {
	return &dipc.Handler{
		Get: func(_ context.Context, ticket string) (array.RecordReader, error) {
			return nil, fmt.Errorf("there is no ticket %s: %w", ticket, dipc.ErrNotFound)
		},
		Put: func(ctx context.Context, ticket string, source *dipc.Source) error {
			table, err := source.Accept(ctx)
			if err != nil {
				return err
			}
			defer table.Release()
			batches, err := collect(table)
			for _, batch := range batches {
				defer batch.Release()
			}
			if err != nil {
				return err
			}
			return server.Replace(ticket, table.Schema(), batches...)
		},
		Exchange: func(ctx context.Context, _ string, source *dipc.Source) (array.RecordReader, error) {
			table, err := source.Accept(ctx)
			if err != nil {
				return nil, err
			}
			return table, nil
		},
	}
}

// errNotSent says that a table was not sent, for a reason that was printed.
var errNotSent = errors.New("not every file was sent")

// sendAll sends one file after another, each by count arguments.
func sendAll(arguments []string, count int, send func(one []string) error) (result error) {
	for ; len(arguments) > 0; arguments = arguments[count:] {
		err := send(arguments[:count])
		var failure *dipc.Error
		switch {
		case errors.As(err, &failure):
			fmt.Println("error", failure.Status.Name(), failure.Text)
		case err != nil:
			fmt.Println("error DIPC_UNKNOWN", err)
		}
		if err != nil {
			result = errNotSent
		}
	}
	return result
}

func put(uri, ticket, path string) error {
	schema, batches, err := read(path)
	if err != nil {
		return err
	}
	ctx := context.Background()
	writer, err := dipc.Put(ctx, uri, ticket, schema)
	if err != nil {
		return err
	}
	defer writer.Close()
	table, err := array.NewRecordReader(schema, batches)
	if err != nil {
		return err
	}
	if err := writer.WriteAll(ctx, table); err != nil {
		return err
	}
	taken, err := writer.Finish(ctx)
	if err != nil {
		return err
	}
	rows := int64(0)
	for _, batch := range batches {
		rows += batch.NumRows()
	}
	printCounts(rows, taken)
	return nil
}

func exchange(uri, ticket, path, out string) error {
	schema, batches, err := read(path)
	if err != nil {
		return err
	}
	ctx := context.Background()
	writer, reader, err := dipc.Exchange(ctx, uri, ticket, schema)
	if err != nil {
		return err
	}
	defer reader.Release()
	sent := make(chan error, 1)
	go func() {
		// Fails the table where a batch was not sent: nobody should wait for the answer.
		defer writer.Close()
		for _, batch := range batches {
			if err := writer.Write(ctx, batch); err != nil {
				sent <- err
				return
			}
		}
		_, err := writer.Finish(ctx)
		sent <- err
	}()
	rows, count, err := write(reader, out)
	if err != nil {
		return err
	}
	if err := <-sent; err != nil {
		return err
	}
	printCounts(rows, count)
	return nil
}
