package dipc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// answerer opens the answer that each descriptor names: each batch twice, all batches after the last one, or an error.
func answerer(ctx context.Context, descriptor string, source *dipc.Source) (array.RecordReader, error) {
	if descriptor == "refuse" {
		return nil, fmt.Errorf("not this one: %w", dipc.ErrPermission)
	}
	table, err := source.Accept(ctx)
	if err != nil {
		return nil, err
	}
	var kept []arrow.RecordBatch
	if descriptor == "late" {
		for table.Next() {
			table.RecordBatch().Retain()
			kept = append(kept, table.RecordBatch())
		}
		if table.Err() != nil {
			return nil, table.Err()
		}
	}
	twice := false
	next := func() (arrow.RecordBatch, error) {
		switch {
		case descriptor == "late" && len(kept) == 0:
			return nil, nil
		case descriptor == "late":
			batch := kept[0]
			kept = kept[1:]
			return batch, nil
		case descriptor == "twice" && twice:
			twice = false
		case !table.Next():
			return nil, table.Err()
		default:
			twice = true
		}
		if descriptor == "fail" {
			return nil, fmt.Errorf("a torn tape: %w", dipc.ErrInvalidData)
		}
		table.RecordBatch().Retain()
		return table.RecordBatch(), nil
	}
	return &reader{schema: numbersSchema, next: next, release: table.Release}, nil
}

func exchange(t *testing.T, ctx context.Context, uri, descriptor string) (*dipc.Writer, *dipc.Reader) {
	t.Helper()
	w, r, err := dipc.Exchange(ctx, uri, descriptor, numbersSchema, dipc.WithWindow(2, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(); r.Release() })
	return w, r
}

// Two goroutines write and read: each batch comes once, twice, or after the end of the client's table.
func TestTablesAreExchanged(t *testing.T) {
	server, uri := newServer(t)
	if err := server.SetHandler(&dipc.Handler{Exchange: answerer}); err != nil {
		t.Fatal(err)
	}
	const batches = 50
	for descriptor, times := range map[string]int{"once": 1, "twice": 2, "late": 1} {
		w, r := exchange(t, testContext(t), uri, descriptor)
		written := make(chan error, 1)
		go func() {
			err := write(testContext(t), w, memory.DefaultAllocator, batches)
			if err == nil {
				_, err = w.Finish(testContext(t))
			}
			written <- err
		}()
		n := 0
		for ; r.Next(); n++ {
			if err := checkNumbers(r.RecordBatch(), n/times*10, 10); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(r.Err(), <-written); err != nil || n != times*batches {
			t.Errorf("%s: %d batches, %v", descriptor, n, err)
		}
		if !r.Schema().Equal(numbersSchema) {
			t.Error(r.Schema())
		}
	}
}

// A refusal ends both tables, and so does an error or an early end on either side.
func TestExchangesFail(t *testing.T) {
	server, uri := newServer(t)
	_, _, err := dipc.Exchange(testContext(t), uri, "any", numbersSchema)
	fails(t, err, dipc.ErrUnsupported, "")
	if err := server.SetHandler(&dipc.Handler{}); err != nil {
		t.Fatal(err)
	}
	_, _, err = dipc.Exchange(testContext(t), uri, "any", numbersSchema)
	fails(t, err, dipc.ErrUnsupported, "exchange tables")
	if err := server.SetHandler(&dipc.Handler{Exchange: answerer}); err != nil {
		t.Fatal(err)
	}
	_, _, err = dipc.Exchange(testContext(t), uri, "refuse", numbersSchema)
	fails(t, err, dipc.ErrPermission, "not this one")

	w, r := exchange(t, testContext(t), uri, "fail")
	if err := pushTo(w); err != nil {
		t.Fatal(err)
	}
	for r.Next() {
	}
	fails(t, r.Err(), dipc.ErrInvalidData, "a torn tape")
	if _, err := w.Finish(testContext(t)); err == nil {
		t.Error("a table that its server failed is taken")
	}

	w, r = exchange(t, testContext(t), uri, "once")
	w.Close()
	for r.Next() {
	}
	if r.Err() == nil {
		t.Error("the answer to a table that was left has an end")
	}

	tired := errors.New("tired")
	ctx, cancel := context.WithCancelCause(testContext(t))
	w, r = exchange(t, ctx, uri, "once")
	before := sleepers()
	ended := make(chan error, 2)
	go func() {
		r.Next()
		ended <- r.Err()
	}()
	go func() {
		_, err := w.NextResult(ctx)
		ended <- err
	}()
	eventually(t, "both sleep", func() bool { return sleepers() >= before+2 })
	cancel(tired)
	for range 2 {
		if err := <-ended; !errors.Is(err, tired) || !errors.Is(err, dipc.ErrCancelled) {
			t.Error(err)
		}
	}
}

// The pull form exchanges too.
func TestExchangesArePulled(t *testing.T) {
	server, uri := newServer(t)
	if err := server.SetHandlerPull(); err != nil {
		t.Fatal(err)
	}
	answerAll(testContext(t), server, func(request *dipc.Request) error {
		if request.Verb != dipc.VerbExchange {
			return dipc.ErrUnsupported
		}
		table, err := request.Source.Accept(request.Context())
		if err != nil {
			return err
		}
		defer table.Release()
		if err := request.Start(numbersSchema); err != nil {
			return err
		}
		for table.Next() {
			if err := request.Push(request.Context(), table.RecordBatch()); err != nil {
				return err
			}
		}
		return errors.Join(table.Err(), request.Finish(request.Context()))
	})
	w, r := exchange(t, testContext(t), uri, "pull")
	for i := range 20 {
		if err := pushTo(w); err != nil {
			t.Fatal(err)
		}
		if !r.Next() {
			t.Fatal(i, r.Err())
		}
	}
	finish(t, w, 20)
	w.Close()
	if r.Next() || r.Err() != nil {
		t.Error(r.Err())
	}
}

// Custom metadata go with a batch: published, written, and sent back by a handler.
func TestMetadataGoWithBatches(t *testing.T) {
	server, uri := newServer(t)
	if err := server.SetHandler(&dipc.Handler{Exchange: answerer}); err != nil {
		t.Fatal(err)
	}
	plain := numbers(memory.DefaultAllocator, 0, 10)
	defer plain.Release()
	metadata := arrow.NewMetadata([]string{"key", "", "key"}, []string{"value", "", "größer"})
	noted := array.NewRecordBatchWithMetadata(numbersSchema, plain.Columns(), 10, metadata)
	defer noted.Release()
	if err := server.Publish("noted", numbersSchema, noted, plain); err != nil {
		t.Fatal(err)
	}
	w, answers := exchange(t, testContext(t), uri, "once")
	for _, batch := range []arrow.RecordBatch{noted, plain} {
		if err := w.Write(testContext(t), batch); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []*dipc.Reader{get(t, uri, "noted"), answers} {
		for _, wanted := range []arrow.Metadata{metadata, {}} {
			if !r.Next() {
				t.Fatal(r.Err())
			}
			if err := checkNumbers(r.RecordBatch(), 0, 10); err != nil {
				t.Error(err)
			}
			var got arrow.Metadata
			if described, ok := r.RecordBatch().(arrow.RecordBatchWithMetadata); ok {
				got = described.Metadata()
			}
			if !got.Equal(wanted) {
				t.Errorf("the metadata are %v, not %v", got, wanted)
			}
		}
	}
	if _, err := w.Finish(testContext(t)); err != nil {
		t.Fatal(err)
	}
}
