// The Go peer of the matrix: one server, and clients that fetch, cancel and send.
//
//	peer serve URI FILE [--block]           tickets "table", "endless" and "broken", and what clients
//	                                        put, until SIGTERM or, without --block, the end of standard
//	                                        input; prints the URI
//	peer get URI TICKET OUT                 writes an Arrow stream file
//	peer cancel URI TICKET N                takes N batches, then cancels
//	peer put URI TICKET FILE ...            sends files, one after another
//	peer exchange URI TICKET FILE OUT ...   sends files, and writes what comes back
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

	dipc "github.com/libdipc/libdipc/bindings/go"

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
	case errors.Is(err, errNotSent):
		os.Exit(3)
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
	case verb == "put" && len(arguments) > 1 && len(arguments)%2 == 1:
		return sendAll(arguments[1:], 2, func(one []string) error { return put(arguments[0], one[0], one[1]) })
	case verb == "exchange" && len(arguments) > 1 && len(arguments)%3 == 1:
		return sendAll(arguments[1:], 3, func(one []string) error {
			return exchange(arguments[0], one[0], one[1], one[2])
		})
	default:
		return errors.New("usage: peer serve URI FILE [--block] | get URI TICKET OUT | cancel URI TICKET N | " +
			"put URI TICKET FILE ... | exchange URI TICKET FILE OUT ...")
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
	if err := server.SetHandler(handler(server)); err != nil {
		return err
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
	batches, err := collect(reader)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return reader.Schema(), batches, nil
}

// collect reads all batches, which stay the caller's to release.
func collect(reader array.RecordReader) ([]arrow.RecordBatch, error) {
	var batches []arrow.RecordBatch
	for reader.Next() {
		batch := reader.RecordBatch()
		batch.Retain()
		batches = append(batches, batch)
	}
	return batches, reader.Err()
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

func get(uri, ticket, out string) error {
	reader, err := dipc.Get(context.Background(), uri, ticket)
	if err != nil {
		return err
	}
	defer reader.Release()
	rows, batches, err := write(reader, out)
	if err != nil {
		return err
	}
	printCounts(rows, batches)
	return nil
}

// write writes a table to a file, and counts what it has.
func write(reader *dipc.Reader, out string) (rows int64, batches uint64, err error) {
	file, err := os.Create(out)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	schema := reader.Schema()
	if schema == nil { // of an exchange that failed before the server's first word
		return 0, 0, reader.Err()
	}
	writer := ipc.NewWriter(file, ipc.WithSchema(schema))
	for reader.Next() {
		batch := reader.RecordBatch()
		if err := writer.Write(batch); err != nil {
			return rows, batches, err
		}
		rows, batches = rows+batch.NumRows(), batches+1
	}
	if err := reader.Err(); err != nil {
		return rows, batches, err
	}
	return rows, batches, writer.Close()
}

func printCounts(rows int64, batches uint64) {
	fmt.Printf("rows=%d batches=%d\n", rows, batches)
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
