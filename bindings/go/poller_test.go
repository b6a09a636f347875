package dipc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// serveGated serves streams that have one batch at once and another one when the input ends.
func serveGated(address string) error {
	server, err := dipc.NewServer(dipc.WithMaxStreams(1000))
	if err != nil {
		return err
	}
	defer server.Close()
	open := make(chan struct{})
	err = server.Serve("gated", func(ctx context.Context, _ string) (array.RecordReader, error) {
		given := 0
		return &reader{schema: numbersSchema, next: func() (arrow.RecordBatch, error) {
			switch given++; given {
			case 1:
			case 2:
				select {
				case <-open:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			default:
				return nil, nil
			}
			return numbers(memory.DefaultAllocator, 0, 10), nil
		}}, nil
	})
	if err != nil {
		return err
	}
	for _, address := range []string{address, "tcp://127.0.0.1:0"} {
		uri, err := server.Listen(address)
		if err != nil {
			return err
		}
		fmt.Println(uri)
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	close(open)
	return server.Shutdown(context.Background())
}

// startGated starts serveGated in a process of its own. It gives the URIs for shm and tcp.
func startGated(t *testing.T) (server *exec.Cmd, input io.Closer, uris []string) {
	t.Helper()
	return startServer(t, "gate")
}

// startServer starts a server in a process of its own, which prints its URIs for shm and tcp.
func startServer(t *testing.T, what string) (server *exec.Cmd, input io.Closer, uris []string) {
	t.Helper()
	server = child(t, what, "DIPC_TEST_ADDRESS=shm:"+t.TempDir()+"/socket")
	input, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(output)
	for range 2 {
		uri, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		uris = append(uris, strings.TrimSpace(uri))
	}
	return server, input, uris
}

// sleepers is how many goroutines the runtime's poller keeps.
func sleepers() int {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return strings.Count(string(stacks), " [IO wait")
}

func threads(t *testing.T) int {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}

// nextOfAll lets each reader wait for its next batch in its own goroutine, and returns once all of them sleep. The
// channel gives what each Next returns.
func nextOfAll(t *testing.T, readers []*dipc.Reader) <-chan bool {
	t.Helper()
	before := sleepers()
	results := make(chan bool, len(readers))
	for _, reader := range readers {
		go func() { results <- reader.Next() }()
	}
	eventually(t, "all readers sleep", func() bool { return sleepers() >= before+len(readers) })
	return results
}

// Readers that wait for their server occupy no thread of the system.
func TestWaitingReadersHaveNoThreads(t *testing.T) {
	server, input, uris := startGated(t)
	var readers []*dipc.Reader
	for i := range 100 {
		reader := get(t, uris[i%len(uris)], "gated")
		if !reader.Next() {
			t.Fatal(reader.Err())
		}
		readers = append(readers, reader)
	}
	before := threads(t)
	results := nextOfAll(t, readers)
	// The runtime starts some threads for calls into C that are slow for a moment.
	if now := threads(t); now > before+len(readers)/2 {
		t.Errorf("%d threads while 100 readers wait, and %d before", now, before)
	}
	input.Close()
	for range readers {
		if !<-results {
			t.Error("a reader that waited has no batch")
		}
	}
	for _, reader := range readers {
		if reader.Err() != nil || reader.Next() || reader.Err() != nil {
			t.Error(reader.Err())
		}
	}
	if err := server.Wait(); err != nil {
		t.Errorf("the server does not end well: %v", err)
	}
}

// A reader that sleeps wakes when its context ends, when it is released, and when its server dies.
func TestSleepingReadersAreWoken(t *testing.T) {
	server, input, uris := startGated(t)
	defer input.Close()
	tired := errors.New("tired")
	ctx, cancel := context.WithCancelCause(testContext(t))
	var readers []*dipc.Reader
	for _, uri := range uris {
		for _, ctx := range []context.Context{ctx, testContext(t), testContext(t)} {
			reader, err := dipc.Get(ctx, uri, "gated")
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Release()
			if !reader.Next() {
				t.Fatal(reader.Err())
			}
			readers = append(readers, reader)
		}
	}
	results := nextOfAll(t, readers)
	check := func(first int, status dipc.Status, cause error) {
		t.Helper()
		for i := first; i < len(readers); i += 3 {
			fails(t, readers[i].Err(), status, "")
			if cause != nil && !errors.Is(readers[i].Err(), cause) {
				t.Errorf("%v is not %v", readers[i].Err(), cause)
			}
		}
	}
	cancel(tired)
	for range uris {
		<-results
	}
	check(0, dipc.ErrCancelled, tired)
	readers[1].Release()
	readers[4].Release()
	for range uris {
		<-results
	}
	check(1, dipc.ErrStopped, dipc.ErrClosed)
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for range uris {
		<-results
	}
	check(2, dipc.ErrDisconnected, nil)
	_ = server.Wait() // it was killed
}
