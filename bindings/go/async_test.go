package dipc_test

import (
	"context"
	"errors"
	"syscall"
	"testing"

	dipc "github.com/libdipc/libdipc/bindings/go"
	"github.com/libdipc/libdipc/bindings/go/internal/casync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
)

// getAsync asks for a table for Arrow's handler.
func getAsync(t *testing.T, ctx context.Context, uri, ticket string) cdata.AsyncRecordBatchStream {
	t.Helper()
	handler := casync.NewHandler()
	answer := cdata.CreateAsyncDeviceStreamHandler(ctx, 4, handler)
	if err := casync.Get(uri, ticket, handler); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		eventually(t, "the handler is released", func() bool { return casync.IsReleased(handler) })
	})
	return <-answer
}

// readAsync counts batches of ten numbers, to the end or a failure.
func readAsync(t *testing.T, stream <-chan cdata.RecordMessage) (int, error) {
	t.Helper()
	count := 0
	for message := range stream {
		if message.Err != nil {
			return count, message.Err
		}
		if err := checkNumbers(message.Record, 10*count, 10); err != nil {
			t.Fatal(err)
		}
		message.Record.Release()
		count++
	}
	return count, nil
}

// answerAsync lets Arrow's producer answer the next request with batches of ten numbers and an end. The channel gives
// the outcome, once the handler is released.
func answerAsync(t *testing.T, server *casync.Server, batches int, end error) <-chan error {
	t.Helper()
	messages, ended := make(chan cdata.RecordMessage), make(chan error, 1)
	stop := make(chan struct{})
	// Arrow gives pointers to the buffers to C.
	ofC := memory.NewCheckedAllocator(mallocator.NewMallocator())
	t.Cleanup(func() {
		eventually(t, "all batches are released", func() bool { return ofC.CurrentAlloc() == 0 })
	})
	go func() {
		defer close(messages)
		send := func(message cdata.RecordMessage) bool {
			select {
			case messages <- message:
				return true
			case <-stop:
				return false
			}
		}
		for i := range batches {
			batch := numbers(ofC, 10*i, 10)
			if !send(cdata.RecordMessage{Record: batch}) {
				batch.Release()
				return
			}
		}
		if end != nil {
			send(cdata.RecordMessage{Err: end})
		}
	}()
	go func() {
		defer close(stop)
		handler, err := server.Answer()
		if err == nil {
			err = cdata.ExportAsyncRecordBatchStream(numbersSchema, messages, handler)
			if !casync.IsReleased(handler) {
				err = errors.New("the handler was not released")
			}
		}
		ended <- err
	}()
	return ended
}

// readNumbers reads batches of ten numbers.
func readNumbers(t *testing.T, reader *dipc.Reader, batches int) {
	t.Helper()
	for i := range batches {
		if !reader.Next() {
			t.Fatal(reader.Err())
		}
		if err := checkNumbers(reader.RecordBatch(), 10*i, 10); err != nil {
			t.Fatal(err)
		}
	}
}

func newAsyncServer(t *testing.T) *casync.Server {
	t.Helper()
	server, err := casync.NewServer(address(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

func TestArrowReadsAsynchronously(t *testing.T) {
	ctx := testContext(t)
	server, uri := newServer(t)
	var batches []arrow.RecordBatch
	for i := range 100 {
		batches = append(batches, numbers(memory.DefaultAllocator, 10*i, 10))
	}
	if err := server.Publish("t", numbersSchema, batches...); err != nil {
		t.Fatal(err)
	}
	stream := getAsync(t, ctx, uri, "t")
	if stream.Err != nil || !stream.Schema.Equal(numbersSchema) {
		t.Fatal(stream.Schema, stream.Err)
	}
	if count, err := readAsync(t, stream.Stream); count != 100 || err != nil {
		t.Fatal(count, err)
	}
	var failure cdata.AsyncStreamError
	unknown := getAsync(t, ctx, uri, "unknown")
	if !errors.As(unknown.Err, &failure) || failure.Code != int(syscall.ENOENT) {
		t.Fatal(unknown.Err)
	}
}

func TestArrowAnswersAsynchronously(t *testing.T) {
	server := newAsyncServer(t)
	for _, batches := range []int{0, 1, 100} {
		ended := answerAsync(t, server, batches, nil)
		reader := get(t, server.URI, "t")
		readNumbers(t, reader, batches)
		if reader.Next() || reader.Err() != nil {
			t.Fatal(reader.Err())
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	// Arrow at both ends.
	ended := answerAsync(t, server, 100, nil)
	stream := getAsync(t, testContext(t), server.URI, "t")
	if stream.Err != nil {
		t.Fatal(stream.Err)
	}
	if count, err := readAsync(t, stream.Stream); count != 100 || err != nil {
		t.Fatal(count, err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestAFailureOfArrowReachesTheClient(t *testing.T) {
	server := newAsyncServer(t)
	for _, batches := range []int{0, 3} {
		broken := errors.New("broken pipe dream")
		ended := answerAsync(t, server, batches, broken)
		reader := get(t, server.URI, "t")
		readNumbers(t, reader, batches)
		if reader.Next() {
			t.Fatal("a batch in place of the failure")
		}
		fails(t, reader.Err(), dipc.ErrProvider, "broken pipe dream")
		if err := <-ended; err != broken {
			t.Fatal(err)
		}
	}
}

func TestAClientThatLeavesCancelsArrow(t *testing.T) {
	server := newAsyncServer(t)
	for _, read := range []int{0, 20} {
		ended := answerAsync(t, server, 1<<30, nil)
		reader := get(t, server.URI, "t")
		readNumbers(t, reader, read)
		reader.Release()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}
