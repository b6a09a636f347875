package dipc_test

import (
	"context"
	"errors"
	"runtime"
	"syscall"
	"testing"
	"time"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Failures of a Get have their status, and the errno behind it.
func TestGetFails(t *testing.T) {
	server, uri := newServer(t)
	publish(t, server, "table")
	ctx := testContext(t)
	_, err := dipc.Get(ctx, uri, "nothing")
	fails(t, err, dipc.ErrNotFound, "nothing")
	_, err = dipc.Get(ctx, "carrier pigeon", "table")
	fails(t, err, dipc.ErrInvalidURI, "")
	_, err = dipc.Get(ctx, "shm:@a\x00b", "table")
	fails(t, err, dipc.ErrInvalidArgument, "NUL")
	_, err = dipc.Get(ctx, uri, "table", dipc.WithDataURI("a"), dipc.WithDataURI("b\x00"))
	fails(t, err, dipc.ErrInvalidArgument, "NUL")
	//lint:ignore SA1012 what happens then is the question
	_, err = dipc.Get(nil, uri, "table")
	fails(t, err, dipc.ErrInvalidArgument, "context")
	for _, option := range []dipc.GetOption{
		dipc.WithWindow(0, 1), dipc.WithValidation(99), dipc.WithConnectTimeout(-1), dipc.WithStallTimeout(-time.Second), dipc.WithReaderSpin(-1), dipc.WithConnections(0),
	} {
		_, err = dipc.Get(ctx, uri, "table", option)
		fails(t, err, dipc.ErrInvalidArgument, "")
	}
	_, err = dipc.Get(ctx, "shm:/nobody/listens/here", "table")
	fails(t, err, dipc.ErrUnreachable, "/nobody/listens/here")
	_, err = server.Listen("shm:/nobody/listens/here")
	fails(t, err, dipc.ErrUnreachable, "/nobody/listens/here")
	if !errors.Is(err, syscall.ENOENT) {
		t.Fatalf("the errno of %v is not ENOENT", err)
	}
}

// Options reach the library.
func TestGetOptions(t *testing.T) {
	server, uri := newServer(t)
	publish(t, server, "table")
	got := get(t, uri, "table", dipc.WithConnectTimeout(time.Minute), dipc.WithStallTimeout(time.Minute),
		dipc.WithReaderSpin(time.Microsecond), dipc.WithConnections(2), dipc.WithWindow(1, 1), dipc.WithLentLimit(0), dipc.WithMessageLimit(1<<20), dipc.WithValidation(dipc.ValidateFull))
	if rows := count(t, got); rows != 10 {
		t.Fatalf("%d rows", rows)
	}
	stats, err := got.Stats()
	if err != nil || stats.Rows != 10 || stats.Batches != 1 || stats.BytesReceived == 0 {
		t.Fatalf("%+v, %v", stats, err)
	}

	_, err = dipc.NewClient(dipc.WithClientTransport("pigeon.wings", "2"))
	fails(t, err, dipc.ErrInvalidArgument, "pigeon.wings")
	_, err = dipc.NewClient(dipc.WithClientTransport("ucx.TLS", "a\x00"))
	fails(t, err, dipc.ErrInvalidArgument, "NUL")
	if dipc.TransportAvailable("ucx") == nil {
		set, err := dipc.NewClient(dipc.WithClientTransport("ucx.TLS", "tcp"))
		if err != nil {
			t.Fatal(err)
		}
		set.Close()
	}

	never := make(chan struct{})
	defer close(never)
	if err := server.Serve("never", func(context.Context, string) (array.RecordReader, error) {
		<-never
		return nil, errors.New("too late")
	}); err != nil {
		t.Fatal(err)
	}
	_, err = dipc.Get(testContext(t), uri, "never", dipc.WithStallTimeout(time.Millisecond))
	fails(t, err, dipc.ErrTimeout, "")
}

// A context that has ended ends a Get before it begins, with its own error and its cause.
func TestContextEndedBefore(t *testing.T) {
	reason := errors.New("the user is tired")
	ctx, cancel := context.WithCancelCause(testContext(t))
	cancel(reason)
	_, err := dipc.Get(ctx, "shm:@nobody", "table")
	fails(t, err, dipc.ErrCancelled, "the user is tired")
	if !errors.Is(err, context.Canceled) || !errors.Is(err, reason) {
		t.Fatalf("%v is not the context's", err)
	}
}

// A context ends a Get that waits, and the provider's context ends with it.
func TestContextEndsGet(t *testing.T) {
	server, uri := newServer(t)
	asked, told := make(chan struct{}), make(chan error)
	err := server.Serve("slow", func(ctx context.Context, _ string) (array.RecordReader, error) {
		close(asked)
		<-ctx.Done()
		told <- ctx.Err()
		return nil, ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	go func() {
		<-asked
		cancel()
	}()
	_, err = dipc.Get(ctx, uri, "slow")
	fails(t, err, dipc.ErrCancelled, "canceled")
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("%v is not the context's", err)
	}
	if err := <-told; !errors.Is(err, context.Canceled) {
		t.Fatalf("the provider's context says %v", err)
	}
}

// stuck gives one batch and then waits until its context ends.
func stuck(waiting chan<- struct{}) dipc.Provider {
	return func(ctx context.Context, _ string) (array.RecordReader, error) {
		n := 0
		return &reader{schema: numbersSchema, next: func() (arrow.RecordBatch, error) {
			if n++; n == 1 {
				return numbers(memory.DefaultAllocator, 0, 10), nil
			}
			close(waiting)
			<-ctx.Done()
			return nil, ctx.Err()
		}}, nil
	}
}

// A context ends a Next that waits.
func TestContextEndsNext(t *testing.T) {
	server, uri := newServer(t)
	waiting := make(chan struct{})
	if err := server.Serve("stuck", stuck(waiting)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	got, err := dipc.Get(ctx, uri, "stuck")
	if err != nil {
		t.Fatal(err)
	}
	defer got.Release()
	if !got.Next() {
		t.Fatal(got.Err())
	}
	go func() {
		<-waiting
		cancel()
	}()
	if got.Next() {
		t.Fatal("the provider gave one batch")
	}
	fails(t, got.Err(), dipc.ErrCancelled, "context")
	if !errors.Is(got.Err(), context.Canceled) {
		t.Fatalf("%v is not the context's", got.Err())
	}
	if got.Next() {
		t.Fatal("the stream goes on")
	}
}

// A deadline ends a stream at any moment, in Get or in Next.
func TestDeadlineEndsStream(t *testing.T) {
	server, uri := newServer(t)
	if err := server.Serve("stuck", stuck(make(chan struct{}))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(testContext(t), 100*time.Millisecond)
	defer cancel()
	got, err := dipc.Get(ctx, uri, "stuck")
	if err == nil {
		defer got.Release()
		for got.Next() {
		}
		err = got.Err()
	}
	fails(t, err, dipc.ErrTimeout, "context")
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, dipc.ErrCancelled) {
		t.Fatalf("%v is not the context's", err)
	}
}

// Release in one goroutine ends a Next that waits in another.
func TestReleaseEndsNext(t *testing.T) {
	server, uri := newServer(t)
	waiting := make(chan struct{})
	if err := server.Serve("stuck", stuck(waiting)); err != nil {
		t.Fatal(err)
	}
	got := get(t, uri, "stuck")
	ended := make(chan error)
	go func() {
		for got.Next() {
		}
		ended <- got.Err()
	}()
	<-waiting
	got.Release()
	err := <-ended
	fails(t, err, dipc.ErrStopped, "closed")
	if !errors.Is(err, dipc.ErrClosed) {
		t.Fatalf("%v is not ErrClosed", err)
	}
}

// Connections are kept for the next table, or not, as the options say.
func TestIdleConnections(t *testing.T) {
	server, uri := newServer(t)
	publish(t, server, "table")
	for _, test := range []struct {
		options []dipc.ClientOption
		made    uint64
	}{
		{[]dipc.ClientOption{dipc.WithIdleTimeout(time.Hour), dipc.WithMaxIdle(1)}, 1},
		{[]dipc.ClientOption{dipc.WithMaxIdle(0)}, 2},
		{[]dipc.ClientOption{dipc.WithIdleTimeout(0)}, 2},
	} {
		client, err := dipc.NewClient(test.options...)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got, err := client.Get(testContext(t), uri, "table")
			if err != nil {
				t.Fatal(err)
			}
			for got.Next() {
			}
			got.Release()
		}
		if stats, err := client.Stats(); err != nil || stats.ConnectionsMade != test.made {
			t.Fatalf("%+v, %v", stats, err)
		}
		client.Close()
	}
}

// Streams of goroutines share a connection (rule S10), or have one each, as the options say.
func TestSharedConnections(t *testing.T) {
	const streams = 10
	server, uri := newServer(t)
	publish(t, server, "table")
	for _, test := range []struct {
		options []dipc.ClientOption
		made    uint64
	}{
		{nil, 1},
		{[]dipc.ClientOption{dipc.WithClientConnections(0)}, streams},
	} {
		client, err := dipc.NewClient(test.options...)
		if err != nil {
			t.Fatal(err)
		}
		type outcome struct {
			got *dipc.Reader
			err error
		}
		outcomes := make(chan outcome)
		for range streams {
			go func() {
				got, err := client.Get(testContext(t), uri, "table")
				outcomes <- outcome{got, err}
			}()
		}
		// All begin before the first one ends: a connection serves one stream after another, too.
		var all []*dipc.Reader
		for range streams {
			one := <-outcomes
			if one.err != nil {
				t.Fatal(one.err)
			}
			all = append(all, one.got)
		}
		if stats, err := client.Stats(); err != nil || stats.ConnectionsMade != test.made {
			t.Errorf("%+v, %v", stats, err)
		}
		for _, got := range all {
			for got.Next() {
			}
			if err := got.Err(); err != nil {
				t.Error(err)
			}
			got.Release()
		}
		client.Close()
	}
}

// Everything can be closed twice, and a call on a closed value is an error.
func TestUseAfterClose(t *testing.T) {
	server, uri := newServer(t)
	publish(t, server, "table")
	client, err := dipc.NewClient(dipc.WithServersOfAnyUser())
	if err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	got, err := client.Get(ctx, uri, "table")
	if err != nil {
		t.Fatal(err)
	}
	if stats, err := client.Stats(); err != nil || stats.Streams != 1 || stats.ConnectionsMade != 1 {
		t.Fatalf("%+v, %v", stats, err)
	}
	arena, err := dipc.NewArena()
	if err != nil {
		t.Fatal(err)
	}

	for range 2 {
		if err := errors.Join(client.Close(), arena.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if rows := count(t, got); rows != 10 {
		t.Fatalf("a reader does not outlive its client: %d rows", rows)
	}
	server.Close()
	server.Close()
	got.Retain()
	got.Release()
	for range 3 {
		got.Release()
	}

	_, getFailure := client.Get(ctx, uri, "table")
	_, clientStats := client.Stats()
	_, serverStats := server.Stats()
	_, readerStats := got.Stats()
	_, arenaStats := arena.Stats()
	_, listen := server.Listen(address(t))
	_, location := server.Location(dipc.RoleBoth)
	_, tickets := server.Tickets()
	if got.Next() || got.RecordBatch() != nil {
		t.Fatal("a released reader reads")
	}
	for what, err := range map[string]error{
		"Get": getFailure, "Client.Stats": clientStats, "Server.Stats": serverStats, "Reader.Stats": readerStats,
		"Arena.Stats": arenaStats, "Listen": listen, "Location": location, "Tickets": tickets,
		"Serve":    server.Serve("t", provide(func() array.RecordReader { return endless() })),
		"Publish":  server.Publish("t", numbersSchema),
		"Withdraw": server.Withdraw("table"), "Shutdown": server.Shutdown(ctx), "Next": got.Err(),
		"Allocate": panicOf(func() { arena.Allocate(1) }),
	} {
		if !errors.Is(err, dipc.ErrClosed) {
			t.Errorf("%s says %v", what, err)
			continue
		}
		fails(t, err, dipc.ErrStopped, "closed")
	}
	if got.Schema() == nil {
		t.Error("the schema is gone")
	}
}

// Values that no New function made are refused, and options that say nothing change nothing.
func TestZeroValues(t *testing.T) {
	var server dipc.Server
	var client dipc.Client
	var arena dipc.Arena
	var got dipc.Reader
	_, listen := server.Listen("shm:@nobody")
	_, get := client.Get(testContext(t), "shm:@nobody", "t")
	_, stats := arena.Stats()
	for _, err := range []error{listen, get, stats, panicOf(func() { arena.Allocate(1) })} {
		fails(t, err, dipc.ErrInvalidArgument, "New function")
	}
	if got.Next() || !errors.Is(got.Err(), dipc.ErrClosed) || got.RecordBatch() != nil {
		t.Errorf("a reader without a stream says %v", got.Err())
	}
	if err := errors.Join(server.Close(), client.Close(), arena.Close()); err != nil {
		t.Error(err)
	}

	made, uri := newServer(t, nil)
	publish(t, made, "table")
	caller, err := dipc.NewClient(dipc.ClientOption{})
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	reader, err := caller.Get(testContext(t), uri, "table", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Release()
	if rows := count(t, reader); rows != 10 {
		t.Errorf("%d rows", rows)
	}
	newArena(t, dipc.ArenaOption{})
}

// panicOf is the error that run panics with.
func panicOf(run func()) (err error) {
	defer func() { err, _ = recover().(error) }()
	run()
	return nil
}

// Close while other goroutines use the server ends their calls with an error, and frees nothing that they still use.
func TestCloseUnderUse(t *testing.T) {
	for range 20 {
		server, uri := newServer(t)
		publish(t, server, "table")
		ended := make(chan error)
		for range 4 {
			go func() {
				for {
					if _, err := server.Stats(); err != nil {
						ended <- err
						return
					}
				}
			}()
		}
		got := get(t, uri, "table")
		got.Next()
		server.Close()
		for range 4 {
			if err := <-ended; !errors.Is(err, dipc.ErrClosed) {
				t.Fatal(err)
			}
		}
	}
}

// Streams leave no goroutines behind, whichever way they end, though their context lives on.
func TestNoGoroutinesAreLeft(t *testing.T) {
	server, uri := newServer(t)
	publish(t, server, "table")
	err := server.Serve("watched", func(ctx context.Context, _ string) (array.RecordReader, error) {
		ctx.Done() // starts watching
		return endless(), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	long, cancelLong := context.WithCancel(testContext(t))
	defer cancelLong()
	before := runtime.NumGoroutine()
	for range 20 {
		for _, ticket := range []string{"table", "watched", "nothing"} {
			ctx, cancel := context.WithCancel(long)
			got, err := dipc.Get(ctx, uri, ticket)
			if ticket == "nothing" {
				fails(t, err, dipc.ErrNotFound, "")
				cancel()
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			got.Next()
			cancel()
			got.Next()
			got.Release()
		}
	}
	// The server's thread that releases batches counts as a goroutine, once it has called into Go.
	eventually(t, "the goroutines are gone", func() bool { return runtime.NumGoroutine() <= before+1 })
}

// What the program forgot is closed when it is collected: a reader's stream is cancelled, a server's
// address is free again.
func TestForgottenHandlesAreClosed(t *testing.T) {
	server, uri := newServer(t)
	cancelled := make(chan struct{})
	if err := server.Serve("endless", provide(func() array.RecordReader {
		r := endless()
		r.release = func() { close(cancelled) }
		return r
	})); err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	batch := func() arrow.RecordBatch {
		got, err := dipc.Get(ctx, uri, "endless")
		if err != nil {
			t.Fatal(err)
		}
		if !got.Next() {
			t.Fatal(got.Err())
		}
		return got.RecordBatch()
	}()
	eventually(t, "a forgotten reader is cancelled", func() bool {
		runtime.GC()
		select {
		case <-cancelled:
			return true
		default:
			return false
		}
	})
	if err := checkNumbers(batch, 0, 10); err != nil {
		t.Fatalf("the batch went with its reader: %v", err)
	}
	batch.Release()

	at := address(t)
	func() {
		forgotten, err := dipc.NewServer(dipc.WithTrustedNetwork())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := forgotten.Listen(at); err != nil {
			t.Fatal(err)
		}
		if _, err := dipc.NewClient(); err != nil {
			t.Fatal(err)
		}
	}()
	next, err := dipc.NewServer(dipc.WithTrustedNetwork())
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	eventually(t, "a forgotten server is closed", func() bool {
		runtime.GC()
		_, err := next.Listen(at)
		return err == nil
	})
}
