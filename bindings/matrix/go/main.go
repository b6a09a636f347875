// The Go peer of the matrix: one server, one client, one client that cancels.
//
//	peer serve URI FILE [--block]   tickets "table", "endless" and "broken" until SIGTERM or, without
//	                                --block, the end of standard input; prints the URI
//	peer get URI TICKET OUT         writes an Arrow stream file
//	peer cancel URI TICKET N        takes N batches, then cancels
//
// Run it with ./peer, which builds it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"dipc"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

func main() {
	err := run(os.Args[1:])
	var failure *dipc.Error
	switch {
	case errors.Is(err, errUnreadable):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(77) // the suite leaves out what cannot be run
	case errors.As(err, &failure):
		fmt.Println("error", failure.Status.Name(), failure.Text)
		os.Exit(3)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	verb := ""
	if len(arguments) > 0 {
		verb, arguments = arguments[0], arguments[1:]
	}
	switch {
	case verb == "serve" && len(arguments) == 2:
		return serve(arguments[0], arguments[1], false)
	case verb == "serve" && len(arguments) == 3 && arguments[2] == "--block":
		return serve(arguments[0], arguments[1], true)
	case verb == "get" && len(arguments) == 3:
		return get(arguments[0], arguments[1], arguments[2])
	case verb == "cancel" && len(arguments) == 3:
		n, err := strconv.Atoi(arguments[2])
		if err != nil {
			return err
		}
		return cancel(arguments[0], arguments[1], n)
	default:
		return errors.New("usage: peer serve URI FILE [--block] | get URI TICKET OUT | cancel URI TICKET N")
	}
}

func serve(uri, file string, block bool) error {
	schema, batches, err := read(file)
	if err != nil {
		return err
	}
	// The matrix stays on one machine; ucx asks for it.
	server, err := dipc.NewServer(dipc.WithTrustedNetwork())
	if err != nil {
		return err
	}
	defer server.Close()
	tickets := map[string]dipc.Provider{
		"table": func(context.Context, string) (array.RecordReader, error) {
			return array.NewRecordReader(schema, batches)
		},
	}
	if len(batches) > 0 {
		tickets["endless"] = func(context.Context, string) (array.RecordReader, error) {
			return &first{batch: batches[0], times: -1}, nil
		}
		tickets["broken"] = func(context.Context, string) (array.RecordReader, error) {
			return &first{batch: batches[0], times: 1}, nil
		}
	}
	for ticket, provider := range tickets {
		if err := server.Serve(ticket, provider); err != nil {
			return err
		}
	}
	// Before the URI is told: who knows it may end this program at once.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	bound, err := server.Listen(uri)
	if err != nil {
		return err
	}
	fmt.Println(bound)
	if !block {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // an end is an end
			stop()
		}()
	}
	<-ctx.Done()
	return nil
}

// errUnreadable says that arrow-go does not take a file, as those with types of width 0.
var errUnreadable = errors.New("arrow-go cannot read the file")

// read reads an Arrow stream file.
func read(path string) (*arrow.Schema, []arrow.RecordBatch, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	reader, err := ipc.NewReader(file)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	defer reader.Release()
	var batches []arrow.RecordBatch
	for reader.Next() {
		batch := reader.RecordBatch()
		batch.Retain()
		batches = append(batches, batch)
	}
	if err := reader.Err(); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return reader.Schema(), batches, nil
}

// first gives a batch again and again; after times of it, if that is not negative, it fails.
type first struct {
	batch arrow.RecordBatch
	times int
	err   error
}

func (*first) Retain()                          {}
func (*first) Release()                         {}
func (f *first) Schema() *arrow.Schema          { return f.batch.Schema() }
func (f *first) RecordBatch() arrow.RecordBatch { return f.batch }
func (f *first) Record() arrow.RecordBatch      { return f.batch }
func (f *first) Err() error                     { return f.err }

func (f *first) Next() bool {
	if f.times == 0 {
		f.err = errors.New("the provider failed on purpose")
		return false
	}
	f.times--
	return true
}

func get(uri, ticket, out string) (err error) {
	reader, err := dipc.Get(context.Background(), uri, ticket)
	if err != nil {
		return err
	}
	defer reader.Release()
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	writer := ipc.NewWriter(file, ipc.WithSchema(reader.Schema()))
	rows, batches := int64(0), 0
	for reader.Next() {
		batch := reader.RecordBatch()
		if err := writer.Write(batch); err != nil {
			return err
		}
		rows, batches = rows+batch.NumRows(), batches+1
	}
	if err := reader.Err(); err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return err
	}
	fmt.Printf("rows=%d batches=%d\n", rows, batches)
	return nil
}

func cancel(uri, ticket string, n int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reader, err := dipc.Get(ctx, uri, ticket)
	if err != nil {
		return err
	}
	defer reader.Release()
	for taken := range n {
		if !reader.Next() {
			return errors.Join(fmt.Errorf("there were %d batches", taken), reader.Err())
		}
	}
	cancel()
	if reader.Next() || !errors.Is(reader.Err(), context.Canceled) {
		return fmt.Errorf("the stream was cancelled and says: %w", reader.Err())
	}
	fmt.Printf("cancelled after %d\n", n)
	return nil
}
