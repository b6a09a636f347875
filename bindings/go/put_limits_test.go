package dipc_test

import (
	"context"
	"errors"
	"testing"
	"time"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow/memory"
)

// taken gives the rows of what a client sends, and how that ended.
func taken(ctx context.Context, source *dipc.Source) (rows int64, err error) {
	reader, err := source.Accept(ctx)
	if err != nil {
		return 0, err
	}
	defer reader.Release()
	for reader.Next() {
		rows += reader.RecordBatch().NumRows()
	}
	return rows, reader.Err()
}

// The limits for what clients send reach the library, and senseless limits are refused.
func TestLimitsOfSources(t *testing.T) {
	for _, option := range []dipc.ServerOption{
		dipc.WithSourceWindow(0, 1), dipc.WithSourceWindow(1, 0), dipc.WithSourceValidation(99), dipc.WithSourceStallTimeout(-1),
	} {
		_, err := dipc.NewServer(option)
		fails(t, err, dipc.ErrInvalidArgument, "")
	}
	server, uri := newServer(t, dipc.WithSourceWindow(1, 1<<20), dipc.WithSourceValidation(dipc.ValidateFull),
		dipc.WithSourceStallTimeout(dipc.Forever), dipc.WithSourceMessageLimit(1<<20))
	ended := make(chan int64, 1)
	put := func(ctx context.Context, _ string, source *dipc.Source) error {
		rows, err := taken(ctx, source)
		ended <- rows
		return err
	}
	if err := server.SetHandler(&dipc.Handler{Put: put}); err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	writer, err := dipc.Put(ctx, uri, "any", numbersSchema)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	batch := numbers(memory.DefaultAllocator, 0, 1000)
	defer batch.Release()
	for range 10 {
		if err := writer.Write(ctx, batch); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := writer.Finish(ctx); err != nil || n != 10 || <-ended != 10_000 {
		t.Fatal(n, err)
	}
}

// A message that needs more memory than the limit ends the table.
func TestMessageLimitOfSources(t *testing.T) {
	server, uri := newServer(t, dipc.WithSourceMessageLimit(1))
	ended := make(chan error, 1)
	put := func(ctx context.Context, _ string, source *dipc.Source) error {
		_, err := taken(ctx, source)
		ended <- err
		return err
	}
	if err := server.SetHandler(&dipc.Handler{Put: put}); err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	writer, err := dipc.Put(ctx, uri, "any", numbersSchema, dipc.WithCompression(dipc.ZSTD))
	if err == nil {
		defer writer.Close()
		batch := numbers(memory.DefaultAllocator, 0, 100_000)
		defer batch.Release()
		if err = writer.Write(ctx, batch); err == nil {
			_, err = writer.Finish(ctx)
		}
	}
	fails(t, err, dipc.ErrOutOfMemory, "")
}

// A client that says nothing is not waited for.
func TestStallTimeoutOfSources(t *testing.T) {
	server, uri := newServer(t, dipc.WithSourceStallTimeout(50*time.Millisecond))
	ended := make(chan error, 1)
	put := func(ctx context.Context, _ string, source *dipc.Source) error {
		_, err := taken(ctx, source)
		ended <- err
		return err
	}
	if err := server.SetHandler(&dipc.Handler{Put: put}); err != nil {
		t.Fatal(err)
	}
	writer, err := dipc.Put(testContext(t), uri, "any", numbersSchema)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := <-ended; !errors.Is(err, dipc.ErrTimeout) {
		t.Fatal(err)
	}
}
