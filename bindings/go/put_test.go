package dipc_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// taker takes tables as their descriptors say.
type taker struct {
	mu   sync.Mutex
	kept []arrow.RecordBatch
	last error // of the last table that was not whole
}

func (k *taker) put(ctx context.Context, descriptor string, source *dipc.Source) error {
	schema, err := source.Schema()
	if err != nil || !schema.Equal(numbersSchema) {
		return fmt.Errorf("%v, %w", schema, err)
	}
	switch descriptor {
	case "refuse":
		return fmt.Errorf("not this one: %w", dipc.ErrPermission)
	case "ignore":
		return nil
	case "explode":
		panic("no place for it")
	}
	if err := dipc.AddHeaders(ctx, dipc.RequestHeaders(ctx)); err != nil {
		return err
	}
	table, err := source.Accept(ctx)
	if err != nil {
		return err
	}
	defer table.Release()
	if _, err := source.Schema(); !errors.Is(err, dipc.ErrInvalidArgument) {
		return fmt.Errorf("the schema is given twice: %w", err)
	}
	switch descriptor {
	case "report":
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, batch := range k.kept {
			batch.Release()
		}
		k.kept = nil
		for table.Next() {
		}
		return source.Result(0, []byte(fmt.Sprint(k.last)))
	case "crash":
		table.Next()
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "slow":
		<-ctx.Done()
		return ctx.Err()
	}
	batches, sum := uint64(0), int64(0)
	for table.Next() {
		batch := table.RecordBatch()
		for _, n := range batch.Column(0).(*array.Int64).Int64Values() {
			sum += n
		}
		batches++
		if descriptor == "half" && batches == 3 {
			return nil
		}
		if descriptor == "keep" {
			batch.Retain()
			k.mu.Lock()
			k.kept = append(k.kept, batch)
			k.mu.Unlock()
		}
		if err := source.Result(batches, binary.LittleEndian.AppendUint64(nil, uint64(sum))); err != nil {
			return err
		}
	}
	if table.Err() != nil {
		k.mu.Lock()
		k.last = table.Err()
		k.mu.Unlock()
	}
	return table.Err()
}

// serveTaking serves, in a process of its own, until its input ends.
func serveTaking(address string) error {
	server, err := dipc.NewServer()
	if err != nil {
		return err
	}
	defer server.Close()
	if err := server.SetHandler(&dipc.Handler{Put: new(taker).put}); err != nil {
		return err
	}
	for _, address := range []string{address, "tcp://127.0.0.1:0"} {
		uri, err := server.Listen(address)
		if err != nil {
			return err
		}
		fmt.Println(uri)
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// writer begins to send a table of numbers.
func writer(t *testing.T, uri, descriptor string, options ...dipc.PutOption) *dipc.Writer {
	t.Helper()
	w, err := dipc.Put(testContext(t), uri, descriptor, numbersSchema, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// write sends batches of ten numbers: 0 to 9, 10 to 19, …
func write(ctx context.Context, w *dipc.Writer, allocator memory.Allocator, batches int) error {
	for i := range batches {
		batch := numbers(allocator, 10*i, 10)
		err := w.Write(ctx, batch)
		batch.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

func finish(t *testing.T, w *dipc.Writer, batches uint64) {
	t.Helper()
	taken, err := w.Finish(testContext(t))
	if err != nil || taken != batches {
		t.Fatalf("%d batches are taken, %v", taken, err)
	}
}

// A table crosses to another process, and the server's result for each part comes back, in order, while more is written
// and after the end.
func TestTablesAreTaken(t *testing.T) {
	_, input, uris := startServer(t, "take")
	defer input.Close()
	for _, uri := range uris {
		for _, batches := range []int{0, 1, 200} {
			w := writer(t, uri, "sum", dipc.WithHeaders(dipc.Headers{"user": {"ada"}}))
			if headers, err := w.Headers(); err != nil || headers.Get("user") != "ada" {
				t.Errorf("%v, %v", headers, err)
			}
			results := make(chan error, 1)
			go func() {
				for expected, sum := uint64(1), uint64(0); ; expected++ {
					result, err := w.NextResult(testContext(t))
					if err == io.EOF && expected == uint64(batches)+1 {
						err = nil
					} else if err == nil {
						for i := range uint64(10) {
							sum += 10*(expected-1) + i
						}
						if result.Batches == expected && binary.LittleEndian.Uint64(result.Bytes) == sum {
							continue
						}
						err = fmt.Errorf("result %d is %+v, not %d", expected, result, sum)
					}
					results <- err
					return
				}
			}()
			if err := write(testContext(t), w, memory.DefaultAllocator, batches); err != nil {
				t.Fatal(err)
			}
			finish(t, w, uint64(batches))
			if err := <-results; err != nil {
				t.Error(err)
			}
			finish(t, w, uint64(batches))
			stats, err := w.Stats()
			if err != nil || stats.Batches != uint64(batches) {
				t.Errorf("%+v, %v", stats, err)
			}
			fails(t, pushTo(w), dipc.ErrInvalidArgument, "finished")
			w.Close()
			fails(t, pushTo(w), dipc.ErrStopped, "")
		}
	}
}

func pushTo(w *dipc.Writer) error { return write(context.Background(), w, memory.DefaultAllocator, 1) }

// A reader is sent to its end; one that fails fails the table, and the server's program hears why.
func TestReadersAreSent(t *testing.T) {
	_, input, uris := startServer(t, "take")
	defer input.Close()
	for _, uri := range uris {
		w := writer(t, uri, "sum")
		batch := numbers(memory.DefaultAllocator, 0, 10)
		defer batch.Release()
		table, err := array.NewRecordReader(numbersSchema, slices.Repeat([]arrow.RecordBatch{batch}, 5))
		if err != nil {
			t.Fatal(err)
		}
		defer table.Release()
		if err := w.WriteAll(testContext(t), table); err != nil {
			t.Fatal(err)
		}
		finish(t, w, 5)

		w = writer(t, uri, "sum")
		broken := &reader{schema: numbersSchema, next: func() (arrow.RecordBatch, error) {
			return nil, fmt.Errorf("a torn tape: %w", dipc.ErrInvalidData)
		}}
		if err := w.WriteAll(testContext(t), broken); err == nil || !strings.Contains(err.Error(), "torn") {
			t.Fatal(err)
		}
		_, err = w.Finish(testContext(t))
		fails(t, err, dipc.ErrInvalidData, "torn")
		expectReport(t, uri, "torn")
	}
}

// expectReport waits until the server's program has seen a table fail with this text.
func expectReport(t *testing.T, uri, words string) {
	t.Helper()
	eventually(t, "the server's program sees "+words, func() bool {
		w := writer(t, uri, "report")
		defer w.Close()
		finish(t, w, 0)
		result, err := w.NextResult(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(result.Bytes), words)
	})
}

// A table that the server does not take is refused before its first batch. If the server's program stops reading a
// table, the table fails with the reason.
func TestTablesAreNotTaken(t *testing.T) {
	_, input, uris := startServer(t, "take")
	defer input.Close()
	for _, uri := range uris {
		for _, c := range []struct {
			descriptor string
			status     dipc.Status
			words      string
		}{
			{"refuse", dipc.ErrPermission, "not this one"},
			{"ignore", dipc.ErrProvider, "did not take"},
			{"explode", dipc.ErrProvider, "no place"},
		} {
			_, err := dipc.Put(testContext(t), uri, c.descriptor, numbersSchema)
			fails(t, err, c.status, c.words)
		}
		w := writer(t, uri, "half")
		err := write(testContext(t), w, memory.DefaultAllocator, 100)
		if err == nil {
			_, err = w.Finish(testContext(t))
		}
		fails(t, err, dipc.ErrProvider, "before its end")
		result, err := w.NextResult(testContext(t))
		if err != nil || result.Batches != 1 {
			t.Errorf("%+v, %v", result, err)
		}
	}
	server, uri := newServer(t)
	_, err := dipc.Put(testContext(t), uri, "any", numbersSchema)
	fails(t, err, dipc.ErrUnsupported, "")
	if err := server.SetHandler(&dipc.Handler{}); err != nil {
		t.Fatal(err)
	}
	_, err = dipc.Put(testContext(t), uri, "any", numbersSchema)
	fails(t, err, dipc.ErrUnsupported, "take tables")
	_, err = dipc.Put(testContext(t), uri, "any", nil)
	fails(t, err, dipc.ErrInvalidArgument, "schema")
	_, err = dipc.Put(testContext(t), uri, "any", numbersSchema, dipc.WithConnections(1<<20))
	fails(t, err, dipc.ErrInvalidArgument, "1 to 16")
}

// A client that leaves or fails a table ends it for the server's program with an error.
func TestClientsLeaveTables(t *testing.T) {
	_, input, uris := startServer(t, "take")
	defer input.Close()
	for _, uri := range uris {
		w := writer(t, uri, "sum")
		if err := write(testContext(t), w, memory.DefaultAllocator, 5); err != nil {
			t.Fatal(err)
		}
		w.Fail(fmt.Errorf("a bad row: %w", dipc.ErrInvalidData))
		_, err := w.Finish(testContext(t))
		fails(t, err, dipc.ErrInvalidData, "a bad row")
		expectReport(t, uri, "a bad row")

		w = writer(t, uri, "sum")
		if err := write(testContext(t), w, memory.DefaultAllocator, 5); err != nil {
			t.Fatal(err)
		}
		w.Close()
		expectReport(t, uri, "left the table")

		tired := errors.New("tired")
		ctx, cancel := context.WithCancelCause(testContext(t))
		w, err = dipc.Put(ctx, uri, "slow", numbersSchema)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		ended := make(chan error)
		go func() {
			_, err := w.Finish(ctx)
			ended <- err
		}()
		cancel(tired)
		err = <-ended
		fails(t, err, dipc.ErrCancelled, "tired")
		if !errors.Is(err, tired) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// A context's deadline and a stall timeout end a table whose server does not read.
func TestTimeEndsTables(t *testing.T) {
	_, input, uris := startServer(t, "take")
	defer input.Close()
	for _, uri := range uris {
		ctx, cancel := context.WithTimeout(testContext(t), time.Second)
		defer cancel()
		w, err := dipc.Put(ctx, uri, "slow", numbersSchema)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		_, err = w.Finish(testContext(t))
		fails(t, err, dipc.ErrTimeout, "")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		w = writer(t, uri, "slow", dipc.WithStallTimeout(100*time.Millisecond))
		_, err = w.NextResult(testContext(t))
		fails(t, err, dipc.ErrTimeout, "has taken nothing")
		fails(t, pushTo(w), dipc.ErrTimeout, "has taken nothing")
	}
}

// A server that is killed ends a table with an error.
func TestServerOfATableDies(t *testing.T) {
	for i := range 2 {
		server, input, uris := startServer(t, "take")
		w := writer(t, uris[i], "crash")
		err := write(testContext(t), w, memory.DefaultAllocator, 1)
		if err == nil {
			_, err = w.Finish(testContext(t))
		}
		fails(t, err, dipc.ErrDisconnected, "")
		_ = server.Wait() // it was killed
		input.Close()
	}
}

// Over shared memory an arena's blocks are lent and not copied, and come back when the server's program
// has released the batches.
func TestArenaIsLentByAClient(t *testing.T) {
	_, input, uris := startServer(t, "take")
	defer input.Close()
	arena := newArena(t)
	for i, uri := range uris {
		w := writer(t, uri, "keep", dipc.WithLentBodies())
		batch := numbers(arena, 0, 100_000)
		if err := w.Write(testContext(t), batch); err != nil {
			t.Fatal(err)
		}
		batch.Release()
		finish(t, w, 1)
		stats, err := w.Stats()
		if err != nil || stats.BytesCopied != 0 || (stats.BytesLent >= 800_000) != (i == 0) ||
			(stats.BytesSent >= 800_000) != (i == 1) {
			t.Errorf("%+v, %v", stats, err)
		}
		used := func() uint64 {
			stats, err := arena.Stats()
			if err != nil {
				t.Fatal(err)
			}
			return stats.UsedBytes
		}
		if i == 0 && used() < 800_000 {
			t.Errorf("%d bytes are in use while the server has the batch", used())
		}
		expectReport(t, uri, "")
		eventually(t, "the arena has its blocks back", func() bool { return used() == 0 })
	}
}

// Writers that wait for their server occupy no thread of the system, a context ends a wait and not the table, and a
// goroutine that waits for results lets others write.
func TestWaitingWritersHaveNoThreads(t *testing.T) {
	server, uri := newServer(t, dipc.WithMaxStreams(1000))
	if err := server.SetHandlerPull(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	rows := make(chan int64)
	answerAll(testContext(t), server, func(request *dipc.Request) error {
		if request.Verb != dipc.VerbPut || request.Source == nil {
			return dipc.ErrUnsupported
		}
		table, err := request.Source.Accept(request.Context())
		if err != nil {
			return err
		}
		defer table.Release()
		<-read
		n := count(t, table)
		if err := request.Source.Result(1, []byte(request.Ticket)); err != nil {
			return err
		}
		if err := request.Finish(request.Context()); err != nil {
			return err
		}
		rows <- n
		return nil
	})
	const writers = 50
	var before int
	written, given := make(chan int, writers), make(chan error, writers)
	for i := range writers {
		w := writer(t, uri, fmt.Sprint(i))
		if i == 0 {
			before = threads(t)
		}
		go func() {
			result, err := w.NextResult(testContext(t))
			if err == nil && string(result.Bytes) != fmt.Sprint(i) {
				err = errors.New(string(result.Bytes))
			}
			given <- err
		}()
		go func() {
			// Until the server has no room.
			ctx, cancel := context.WithTimeout(testContext(t), 200*time.Millisecond)
			defer cancel()
			n := 0
			var err error
			for err == nil {
				if err = write(ctx, w, memory.DefaultAllocator, 1); err == nil {
					n++
				}
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			written <- n
			if _, err := w.Finish(testContext(t)); err != nil {
				t.Error(err)
			}
		}()
	}
	total := int64(0)
	for range writers {
		total += int64(10 * <-written)
	}
	eventually(t, "all writers sleep", func() bool { return sleepers() >= writers })
	if now := threads(t); now > before+writers {
		t.Errorf("%d threads while %d writers wait, and %d before", now, writers, before)
	}
	close(read)
	for range writers {
		total -= <-rows
		if err := <-given; err != nil {
			t.Error(err)
		}
	}
	if total != 0 {
		t.Errorf("%d rows are missing", total)
	}
}

// A source that waits for its client ends with the reader's context, and when the reader is released.
func TestSourcesThatWaitAreWoken(t *testing.T) {
	server, uri := newServer(t)
	if err := server.SetHandlerPull(); err != nil {
		t.Fatal(err)
	}
	for _, release := range []bool{false, true} {
		begun := make(chan *dipc.Writer)
		go func() {
			w, err := dipc.Put(testContext(t), uri, "t", numbersSchema)
			if err != nil {
				t.Error(err)
			}
			begun <- w
		}()
		request, err := server.NextRequest(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		tired := errors.New("tired")
		ctx, cancel := context.WithCancelCause(testContext(t))
		table, err := request.Source.Accept(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, err = request.Source.Accept(ctx)
		fails(t, err, dipc.ErrInvalidArgument, "before")
		w := <-begun
		before := sleepers()
		ended := make(chan error)
		go func() {
			table.Next()
			ended <- table.Err()
		}()
		eventually(t, "the reader sleeps", func() bool { return sleepers() > before })
		if release {
			table.Release()
			fails(t, <-ended, dipc.ErrStopped, "")
		} else {
			cancel(tired)
			err := <-ended
			fails(t, err, dipc.ErrCancelled, "tired")
			table.Release()
			request.Fail(err)
		}
		cancel(nil)
		request.Close()
		_, err = w.Finish(testContext(t))
		if err == nil {
			t.Error("a table that was left is taken")
		}
		w.Close()
		fails(t, request.Source.Result(1, nil), dipc.ErrStopped, "")
	}
}
