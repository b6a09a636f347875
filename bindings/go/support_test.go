package dipc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// patience bounds what a test waits for; it is never reached when all is well.
const patience = 60 * time.Second

// newServer starts a server at an address of its own, and gives its URI.
func newServer(t testing.TB, options ...dipc.ServerOption) (*dipc.Server, string) {
	t.Helper()
	// A ucx address asks for it; it changes nothing for others.
	server, err := dipc.NewServer(append(options, dipc.WithTrustedNetwork())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	uri, err := server.Listen(address(t))
	if err != nil {
		t.Fatal(err)
	}
	return server, uri
}

// address is one where nobody listens. DIPC_TEST_SCHEME takes another transport than shm.
func address(t testing.TB) string {
	if scheme := os.Getenv("DIPC_TEST_SCHEME"); scheme != "" && scheme != "shm" {
		return scheme + "://127.0.0.1:0"
	}
	return "shm:" + filepath.Join(t.TempDir(), "socket")
}

// testContext ends with the test, and when the test waits for too long.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func get(t testing.TB, uri, ticket string, options ...dipc.GetOption) *dipc.Reader {
	t.Helper()
	reader, err := dipc.Get(testContext(t), uri, ticket, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// A test may have released it; one release too many does nothing.
		reader.Release()
	})
	return reader
}

// eventually waits until done says so, for what happens on the library's own threads.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("it never came that %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// fails checks that err is an *Error of a status, with words in its text.
func fails(t testing.TB, err error, status dipc.Status, words string) {
	t.Helper()
	var failure *dipc.Error
	if !errors.As(err, &failure) {
		t.Fatalf("got %v, not an *Error with %s", err, status.Name())
	}
	if failure.Status != status || !errors.Is(err, status) {
		t.Fatalf("got %s (%v), not %s", failure.Status.Name(), err, status.Name())
	}
	if !strings.Contains(failure.Text, words) {
		t.Fatalf("the text %q does not say %q", failure.Text, words)
	}
}

var numbersSchema = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)

// numbers is a batch of n, n+1, … in memory of the allocator's.
func numbers(allocator memory.Allocator, first, rows int) arrow.RecordBatch {
	builder := array.NewRecordBuilder(allocator, numbersSchema)
	defer builder.Release()
	column := builder.Field(0).(*array.Int64Builder)
	column.Reserve(rows)
	for i := range rows {
		column.Append(int64(first + i))
	}
	return builder.NewRecordBatch()
}

// checkNumbers says what is wrong with a batch that numbers made.
func checkNumbers(batch arrow.RecordBatch, first, rows int) error {
	if batch.NumRows() != int64(rows) {
		return fmt.Errorf("%d rows, not %d", batch.NumRows(), rows)
	}
	for i, value := range batch.Column(0).(*array.Int64).Int64Values() {
		if value != int64(first+i) {
			return fmt.Errorf("row %d is %d, not %d", i, value, first+i)
		}
	}
	return nil
}

// reader is a RecordReader made of functions.
type reader struct {
	schema  *arrow.Schema
	next    func() (arrow.RecordBatch, error) // nil, nil: the end
	release func()

	current arrow.RecordBatch
	err     error
}

func (r *reader) Retain() {}

func (r *reader) Release() {
	if r.current != nil {
		r.current.Release()
		r.current = nil
	}
	if r.release != nil {
		r.release()
	}
}

func (r *reader) Schema() *arrow.Schema          { return r.schema }
func (r *reader) RecordBatch() arrow.RecordBatch { return r.current }
func (r *reader) Record() arrow.RecordBatch      { return r.current }
func (r *reader) Err() error                     { return r.err }

func (r *reader) Next() bool {
	if r.current != nil {
		r.current.Release()
	}
	r.current, r.err = r.next()
	return r.current != nil
}

// endless gives batches of ten numbers for ever.
func endless() *reader {
	first := 0
	return &reader{schema: numbersSchema, next: func() (arrow.RecordBatch, error) {
		batch := numbers(memory.DefaultAllocator, first, 10)
		first += 10
		return batch, nil
	}}
}

// provide is a provider that gives what open opens.
func provide(open func() array.RecordReader) dipc.Provider {
	return func(context.Context, string) (array.RecordReader, error) { return open(), nil }
}
