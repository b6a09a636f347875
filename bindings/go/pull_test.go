package dipc_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow/memory"
)

// newPullServer serves the ticket "pulled" in the pull form.
func newPullServer(t *testing.T, options ...dipc.ServerOption) (*dipc.Server, string) {
	t.Helper()
	server, uri := newServer(t, options...)
	if err := server.ServePull("pulled"); err != nil {
		t.Fatal(err)
	}
	return server, uri
}

// answerAll answers each request of a server in a goroutine of its own, until ctx ends or the server
// is stopped.
func answerAll(ctx context.Context, server *dipc.Server, answer func(*dipc.Request) error) <-chan error {
	ended := make(chan error, 1)
	go func() {
		for {
			request, err := server.NextRequest(ctx)
			if err != nil {
				ended <- err
				return
			}
			go func() {
				defer request.Close()
				if err := answer(request); err != nil {
					request.Fail(err)
				}
			}()
		}
	}()
	return ended
}

// push sends batches of ten numbers and ends the stream.
func push(request *dipc.Request, batches int) error {
	if err := request.Start(numbersSchema); err != nil {
		return err
	}
	for i := range batches {
		batch := numbers(memory.DefaultAllocator, 10*i, 10)
		err := request.Push(request.Context(), batch)
		batch.Release()
		if err != nil {
			return err
		}
	}
	return request.Finish(request.Context())
}

// Streams of a server in the pull form wait for their clients without a thread of the system for each.
func TestPushingStreamsHaveNoThreads(t *testing.T) {
	server, uri := newPullServer(t, dipc.WithMaxStreams(1000))
	stopped := answerAll(testContext(t), server, func(request *dipc.Request) error { return push(request, 20) })
	before := threads(t)
	var readers []*dipc.Reader
	for range 100 {
		readers = append(readers, get(t, uri, "pulled", dipc.WithWindow(1, math.MaxUint64)))
	}
	// Each stream waits for its client, and one goroutine for the next request.
	eventually(t, "all streams sleep", func() bool { return sleepers() >= len(readers)+1 })
	if now := threads(t); now > before+len(readers)/2 {
		t.Errorf("%d threads while 100 streams wait, and %d before", now, before)
	}
	rows := make(chan int64)
	for _, reader := range readers {
		go func() {
			var n int64
			for reader.Next() {
				if err := checkNumbers(reader.RecordBatch(), int(n), 10); err != nil {
					t.Error(err)
				}
				n += reader.RecordBatch().NumRows()
			}
			rows <- n
		}()
	}
	for range readers {
		if n := <-rows; n != 200 {
			t.Errorf("%d rows", n)
		}
	}
	server.Close()
	if err := <-stopped; !errors.Is(err, dipc.ErrClosed) {
		t.Error(err)
	}
}

// A request of the pull form says what was asked and by whom, and takes the headers of the answer.
func TestPulledRequestsSayWhatWasAsked(t *testing.T) {
	server, uri := newServer(t)
	if err := server.SetHandlerPull(); err != nil {
		t.Fatal(err)
	}
	tcp, err := server.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	answerAll(testContext(t), server, func(request *dipc.Request) error {
		if err := dipc.AddHeaders(request.Context(), dipc.Headers{"ticket": {request.Ticket}}); err != nil {
			return err
		}
		_, limited := request.Context().Deadline()
		if request.Headers.Get("user") != "ada" || !limited ||
			!reflect.DeepEqual(request.Peer, dipc.RequestPeer(request.Context())) {
			return fmt.Errorf("%q of %v: %w", request.Headers, request.Peer, dipc.ErrPermission)
		}
		if process := request.Peer.Process; strings.HasPrefix(request.Peer.Transport, "shm") {
			if *process != (dipc.Process{PID: os.Getpid(), UID: os.Getuid(), GID: os.Getgid()}) || request.Peer.Address != "" {
				return fmt.Errorf("%+v", process)
			}
		} else if process != nil || request.Peer.Transport == "tcp" && !strings.HasPrefix(request.Peer.Address, "127.0.0.1:") {
			return fmt.Errorf("%+v", request.Peer)
		}
		switch request.Verb {
		case dipc.VerbDescribe:
			return request.Describe(request.Context(), &parts)
		case dipc.VerbList:
			return request.List(request.Context(), parts.Endpoints)
		default:
			return push(request, 3)
		}
	})
	user := dipc.WithHeaders(dipc.Headers{"user": {"ada"}})
	for _, uri := range []string{uri, tcp} {
		reader := get(t, uri, "any\x00thing", user)
		if answer := headersOf(t, reader); answer.Get("ticket") != "any\x00thing" {
			t.Errorf("%q", answer)
		}
		if rows := count(t, reader); rows != 30 {
			t.Errorf("%d rows", rows)
		}
		description, err := dipc.Describe(testContext(t), uri, "d", user)
		if err != nil {
			t.Fatal(err)
		}
		if !description.Schema.Equal(numbersSchema) || description.Headers.Get("ticket") != "d" {
			t.Errorf("%+v", description)
		}
		description.Schema, description.Headers = parts.Schema, nil
		if !reflect.DeepEqual(description, &parts) {
			t.Errorf("%+v", description)
		}
		listing, err := dipc.List(testContext(t), uri, "l", user)
		if err != nil || !reflect.DeepEqual(listing.Endpoints, parts.Endpoints) {
			t.Errorf("%+v, %v", listing, err)
		}
		_, err = dipc.Get(testContext(t), uri, "t")
		fails(t, err, dipc.ErrPermission, "map[]")
	}
	if err := server.SetHandler(nil); err != nil {
		t.Fatal(err)
	}
	_, err = dipc.Get(testContext(t), uri, "t")
	fails(t, err, dipc.ErrNotFound, "")
}

func pushOne(ctx context.Context, request *dipc.Request) error {
	batch := numbers(memory.DefaultAllocator, 0, 10)
	defer batch.Release()
	return request.Push(ctx, batch)
}

// fullStream opens a stream and pushes batches until its client has no room.
func fullStream(t *testing.T, server *dipc.Server, uri string) (reader *dipc.Reader, request *dipc.Request, pushed int) {
	t.Helper()
	asked := make(chan *dipc.Request)
	go func() {
		request, err := server.NextRequest(testContext(t))
		if err == nil {
			err = request.Start(numbersSchema)
		}
		if err != nil {
			t.Error(err)
		}
		asked <- request
	}()
	reader = get(t, uri, "pulled", dipc.WithWindow(1, math.MaxUint64))
	request = <-asked
	t.Cleanup(func() { request.Close() })
	for {
		ctx, cancel := context.WithTimeout(testContext(t), 20*time.Millisecond)
		err := pushOne(ctx, request)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return reader, request, pushed
		}
		if err != nil {
			t.Fatal(err)
		}
		pushed++
	}
}

// A stream that waits for its client hears that it has gone.
func TestPushHearsOfCancel(t *testing.T) {
	server, uri := newPullServer(t)
	for _, own := range []bool{false, true} {
		reader, request, _ := fullStream(t, server, uri)
		pushed := make(chan error)
		go func() {
			ctx := context.Background()
			if own {
				ctx = request.Context()
			}
			pushed <- pushOne(ctx, request)
		}()
		reader.Release()
		err := <-pushed
		fails(t, err, dipc.ErrCancelled, "")
		if own && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-request.Context().Done()
		if err := request.Context().Err(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// A stream that waits for its client ends at the deadline of the client, whichever side meets it first.
func TestPushEndsAtDeadline(t *testing.T) {
	server, uri := newPullServer(t)
	pushed := make(chan error, 1)
	answerAll(testContext(t), server, func(request *dipc.Request) error {
		err := request.Start(numbersSchema)
		for err == nil {
			err = pushOne(request.Context(), request)
		}
		pushed <- err
		return err
	})
	ctx, cancel := context.WithTimeout(testContext(t), 200*time.Millisecond)
	defer cancel()
	reader, err := dipc.Get(ctx, uri, "pulled", dipc.WithWindow(1, math.MaxUint64))
	if err != nil {
		fails(t, err, dipc.ErrTimeout, "") // on a machine that is very slow
		return
	}
	defer reader.Release()
	if err := <-pushed; !errors.Is(err, dipc.ErrCancelled) {
		t.Error(err)
	}
}

// A stream that waits for its client ends when another goroutine fails it, and its client is told why.
func TestFailEndsPush(t *testing.T) {
	server, uri := newPullServer(t)
	reader, request, _ := fullStream(t, server, uri)
	pushed := make(chan error)
	go func() { pushed <- pushOne(context.Background(), request) }()
	go request.Fail(fmt.Errorf("out of tea: %w", dipc.ErrNotFound))
	if err := <-pushed; !errors.Is(err, dipc.ErrClosed) {
		t.Error(err)
	}
	for reader.Next() {
	}
	fails(t, reader.Err(), dipc.ErrNotFound, "out of tea")
	<-request.Context().Done()
	for _, err := range []error{request.Start(numbersSchema), request.Finish(context.Background())} {
		fails(t, err, dipc.ErrStopped, "closed")
	}
}

// A push that was given up sent nothing, and several goroutines may push.
func TestPushIsGivenUp(t *testing.T) {
	server, uri := newPullServer(t)
	reader, request, pushed := fullStream(t, server, uri)
	results := make(chan error)
	for range 4 {
		go func() { results <- pushOne(context.Background(), request) }()
	}
	rows := make(chan int64)
	go func() { rows <- count(t, reader) }()
	for range 4 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if err := request.Finish(context.Background()); err != nil {
		t.Error(err)
	}
	if n := <-rows; n != int64(10*(pushed+4)) {
		t.Errorf("%d rows of %d batches", n, pushed+4)
	}
	server.Close()
	_, err := server.NextRequest(context.Background())
	fails(t, err, dipc.ErrStopped, "closed")
}

// A wait for a request ends with its context and with the server, and one of several waits gets a
// request.
func TestNextRequestEnds(t *testing.T) {
	server, uri := newPullServer(t)
	ctx, cancel := context.WithCancel(testContext(t))
	given := make(chan error)
	wait := func(ctx context.Context) {
		request, err := server.NextRequest(ctx)
		if err == nil {
			err = push(request, 1)
		}
		given <- err
	}
	for range 2 {
		go wait(ctx)
	}
	count(t, get(t, uri, "pulled"))
	if err := <-given; err != nil {
		t.Error(err)
	}
	cancel()
	err := <-given
	fails(t, err, dipc.ErrCancelled, "context")
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	go wait(testContext(t))
	server.Close()
	fails(t, <-given, dipc.ErrStopped, "closed")
}

// What clients have given back is released though the server has nothing to do, and a request that the
// program forgot fails.
func TestPushedBatchesAreReleased(t *testing.T) {
	server, uri := newPullServer(t)
	arena := newArena(t)
	forgotten := make(chan error, 1)
	go func() {
		for i := range 2 {
			request, err := server.NextRequest(testContext(t))
			if err == nil {
				err = request.Start(numbersSchema)
			}
			if err != nil {
				forgotten <- err
				return
			}
			batch := numbers(arena, 0, 10_000)
			err = request.Push(testContext(t), batch)
			batch.Release()
			if i == 0 && err == nil {
				err = request.Finish(testContext(t))
			}
			forgotten <- err
		}
	}()
	reader := get(t, uri, "pulled")
	if !reader.Next() {
		t.Fatal(reader.Err())
	}
	if err := <-forgotten; err != nil {
		t.Fatal(err)
	}
	// Another transport sends a copy.
	if stats, err := arena.Stats(); err != nil || stats.UsedBytes == 0 && strings.HasPrefix(uri, "shm:") {
		t.Errorf("%+v, %v", stats, err)
	}
	count(t, reader)
	reader.Release()
	eventually(t, "the batch is released", func() bool {
		stats, err := arena.Stats()
		return err == nil && stats.UsedBytes == 0
	})

	reader = get(t, uri, "pulled")
	if err := <-forgotten; err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		for reader.Next() {
		}
		ended <- reader.Err()
	}()
	eventually(t, "the request fails", func() bool {
		runtime.GC()
		select {
		case err := <-ended:
			fails(t, err, dipc.ErrProvider, "closed before")
			return true
		default:
			return false
		}
	})
}

// What cannot be sent in the pull form is refused, and the stream goes on.
func TestWrongPushes(t *testing.T) {
	server, uri := newPullServer(t)
	fails(t, server.ServePull("pulled"), dipc.ErrAlreadyExists, "")
	answerAll(testContext(t), server, func(request *dipc.Request) error {
		ctx := request.Context()
		batch := numbers(memory.DefaultAllocator, 0, 10)
		defer batch.Release()
		for _, err := range []error{
			request.Push(ctx, batch), request.Finish(ctx), request.Start(nil), request.Describe(ctx, nil),
		} {
			if !errors.Is(err, dipc.ErrInvalidArgument) {
				return fmt.Errorf("not refused: %w", err)
			}
		}
		return push(request, 1)
	})
	if rows := count(t, get(t, uri, "pulled")); rows != 10 {
		t.Errorf("%d rows", rows)
	}
}

// Requests wait for their servers, not for each other, and without threads: a server has a hundred
// before it answers the first one.
func TestRequestsWaitWithoutThreads(t *testing.T) {
	const count = 100
	server, uri := newPullServer(t, dipc.WithMaxStreams(2*count))
	client, err := dipc.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	before := threads(t)
	outcomes := make(chan error, count)
	for range count {
		go func() {
			r, err := client.Get(testContext(t), uri, "pulled")
			if err != nil {
				outcomes <- err
				return
			}
			defer r.Release()
			if !r.Next() {
				outcomes <- fmt.Errorf("no batch: %w", r.Err())
				return
			}
			outcomes <- checkNumbers(r.RecordBatch(), 0, 10)
		}()
	}
	requests := make([]*dipc.Request, 0, count)
	for range count {
		request, err := server.NextRequest(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		defer request.Close()
		requests = append(requests, request)
	}
	// Of the client's own that connect, and of the runtime's.
	if grown := threads(t) - before; grown > 40 {
		t.Errorf("%d requests that wait occupy %d threads", count, grown)
	}
	for _, request := range requests {
		go func() { outcomes <- push(request, 1) }()
	}
	for range 2 * count {
		if err := <-outcomes; err != nil {
			t.Error(err)
		}
	}
}
