package dipc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// A provider is called once for each stream, with its ticket; its reader is released.
func TestProviderIsCalledForEachStream(t *testing.T) {
	server, uri := newServer(t)
	var calls, released atomic.Int32
	err := server.Serve("table", func(ctx context.Context, ticket string) (array.RecordReader, error) {
		calls.Add(1)
		if ticket != "table" || !strings.Contains(dipc.RequestPeer(ctx).Text, "pid") && address(t)[:3] == "shm" {
			return nil, fmt.Errorf("asked for %q by %q", ticket, dipc.RequestPeer(ctx))
		}
		n := 0
		return &reader{schema: numbersSchema, release: func() { released.Add(1) }, next: func() (arrow.RecordBatch, error) {
			n++
			if n > 3 {
				return nil, nil
			}
			return numbers(memory.DefaultAllocator, n*100, 100), nil
		}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for stream := range int32(3) {
		got := get(t, uri, "table")
		n := 0
		for got.Next() {
			n++
			if err := checkNumbers(got.RecordBatch(), n*100, 100); err != nil {
				t.Fatal(err)
			}
		}
		if n != 3 || got.Err() != nil {
			t.Fatalf("%d batches, %v", n, got.Err())
		}
		if calls.Load() != stream+1 {
			t.Fatalf("%d calls for %d streams", calls.Load(), stream+1)
		}
	}
	eventually(t, "each reader is released", func() bool { return released.Load() == 3 })
}

// The client gets the text and the status of a provider's error.
func TestProviderFails(t *testing.T) {
	server, uri := newServer(t)
	var typedNil *reader
	for _, c := range []struct {
		name   string
		call   func() (array.RecordReader, error)
		status dipc.Status
		words  string
	}{
		{"words", func() (array.RecordReader, error) { return nil, errors.New("the disk is on fire") },
			dipc.ErrProvider, "the disk is on fire"},
		{"sentinel", func() (array.RecordReader, error) { return nil, fmt.Errorf("no rows of 1970: %w", dipc.ErrNotFound) },
			dipc.ErrNotFound, "no rows of 1970"},
		{"error", func() (array.RecordReader, error) {
			return nil, &dipc.Error{Status: dipc.ErrPermission, Text: "not for you"}
		}, dipc.ErrPermission, "not for you"},
		{"context", func() (array.RecordReader, error) { return nil, context.DeadlineExceeded },
			dipc.ErrTimeout, "deadline exceeded"},
		{"odd text", func() (array.RecordReader, error) { return nil, errors.New("a\x00b\xffc") },
			dipc.ErrProvider, "a\uFFFDb\uFFFDc"},
		{"panic", func() (array.RecordReader, error) { panic("what a day") }, dipc.ErrProvider, "panicked: what a day"},
		{"panic with an error", func() (array.RecordReader, error) { panic(fmt.Errorf("full: %w", dipc.ErrOutOfMemory)) },
			dipc.ErrOutOfMemory, "panicked: full"},
		{"nothing", func() (array.RecordReader, error) { return nil, nil }, dipc.ErrProvider, "neither a reader nor an error"},
		{"typed nil", func() (array.RecordReader, error) { return typedNil, nil }, dipc.ErrProvider, "panicked: runtime error"},
		{"no schema", func() (array.RecordReader, error) { return &reader{}, nil }, dipc.ErrProvider, "no schema"},
	} {
		t.Run(c.name, func(t *testing.T) {
			provider := func(context.Context, string) (array.RecordReader, error) { return c.call() }
			if err := server.Serve(c.name, provider); err != nil {
				t.Fatal(err)
			}
			_, err := dipc.Get(testContext(t), uri, c.name)
			fails(t, err, c.status, c.words)
		})
	}
}

// A failure in the middle ends that stream with its text, and no other stream.
func TestProviderFailsOnTheWay(t *testing.T) {
	server, uri := newServer(t)
	wrongType := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int32}}, nil)
	twoColumns := arrow.NewSchema([]arrow.Field{numbersSchema.Field(0), {Name: "m", Type: arrow.PrimitiveTypes.Int64}}, nil)
	otherName := arrow.NewSchema([]arrow.Field{{Name: "m", Type: arrow.PrimitiveTypes.Int64}}, nil)
	empty := func(schema *arrow.Schema) arrow.RecordBatch {
		builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		defer builder.Release()
		return builder.NewRecordBatch()
	}
	for _, c := range []struct {
		name   string
		next   func() (arrow.RecordBatch, error)
		status dipc.Status
		words  string
	}{
		{"error", func() (arrow.RecordBatch, error) { return nil, errors.New("broken pipe dream") },
			dipc.ErrProvider, "broken pipe dream"},
		{"panic", func() (arrow.RecordBatch, error) { panic("lost") }, dipc.ErrProvider, "panicked: lost"},
		{"wrong type", func() (arrow.RecordBatch, error) { return empty(wrongType), nil },
			dipc.ErrInvalidData, `"n" is of type Int32 and not Int64`},
		{"other name", func() (arrow.RecordBatch, error) { return empty(otherName), nil },
			dipc.ErrInvalidData, `column 1 is "m" and not "n"`},
		{"two columns", func() (arrow.RecordBatch, error) { return empty(twoColumns), nil },
			dipc.ErrInvalidData, "it has 2 columns and not 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := 0
			broken := &reader{schema: numbersSchema, release: func() { panic("and in Release too") }}
			broken.next = func() (arrow.RecordBatch, error) {
				if n++; n == 1 {
					return numbers(memory.DefaultAllocator, 0, 10), nil
				}
				return c.next()
			}
			if err := server.Serve(c.name, provide(func() array.RecordReader { return broken })); err != nil {
				t.Fatal(err)
			}
			got := get(t, uri, c.name)
			for got.Next() {
				if err := checkNumbers(got.RecordBatch(), 0, 10); err != nil {
					t.Fatal(err)
				}
			}
			fails(t, got.Err(), c.status, c.words)
			if got.Next() || got.RecordBatch() != nil {
				t.Fatal("a stream goes on after its failure")
			}
		})
	}
	publish(t, server, "fine")
	if rows := count(t, get(t, uri, "fine")); rows != 10 {
		t.Fatalf("the server is hurt: %d rows", rows)
	}
}

func publish(t testing.TB, server *dipc.Server, ticket string) {
	t.Helper()
	batch := numbers(memory.DefaultAllocator, 0, 10)
	defer batch.Release()
	if err := server.Publish(ticket, numbersSchema, batch); err != nil {
		t.Fatal(err)
	}
}

func count(t testing.TB, reader *dipc.Reader) (rows int64) {
	t.Helper()
	for reader.Next() {
		rows += reader.RecordBatch().NumRows()
	}
	if reader.Err() != nil {
		t.Fatal(reader.Err())
	}
	return rows
}

// Tickets are any bytes, are served once, and are listed in order.
func TestTickets(t *testing.T) {
	server, uri := newServer(t)
	odd := []string{"", "a\x00b", "\xff", "öl"}
	for _, ticket := range odd {
		publish(t, server, ticket)
	}
	fails(t, server.Serve("öl", provide(func() array.RecordReader { return endless() })), dipc.ErrAlreadyExists, "served already")
	batch := numbers(memory.DefaultAllocator, 0, 1)
	defer batch.Release()
	fails(t, server.Publish("öl", numbersSchema, batch), dipc.ErrAlreadyExists, "served already")
	if err := checkNumbers(batch, 0, 1); err != nil {
		t.Fatalf("a batch that was refused is hurt: %v", err)
	}
	tickets, err := server.Tickets()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(odd)
	if !slices.Equal(tickets, odd) {
		t.Fatalf("%q and not %q", tickets, odd)
	}
	for _, ticket := range odd {
		if rows := count(t, get(t, uri, ticket)); rows != 10 {
			t.Fatalf("%q has %d rows", ticket, rows)
		}
		if err := server.Withdraw(ticket); err != nil {
			t.Fatal(err)
		}
		fails(t, server.Withdraw(ticket), dipc.ErrNotFound, "")
		_, err := dipc.Get(testContext(t), uri, ticket)
		fails(t, err, dipc.ErrNotFound, "")
	}
}

// What cannot be served is refused with a text.
func TestRefusedArguments(t *testing.T) {
	server, _ := newServer(t)
	fails(t, server.Serve("t", nil), dipc.ErrInvalidArgument, "nil")
	fails(t, server.Publish("t", nil), dipc.ErrInvalidArgument, "schema")
	fails(t, server.Publish("t", numbersSchema, nil), dipc.ErrInvalidArgument, "batch 0")
	other := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.BinaryTypes.String}}, nil)
	batch := numbers(memory.DefaultAllocator, 0, 1)
	defer batch.Release()
	fails(t, server.Publish("t", other, batch), dipc.ErrInvalidData, "Int64")
	_, err := server.Listen("carrier pigeon")
	fails(t, err, dipc.ErrInvalidURI, "")
	_, err = server.Listen("shm:@a\x00b")
	fails(t, err, dipc.ErrInvalidArgument, "NUL")
	for _, option := range []dipc.ServerOption{
		dipc.WithMaxStreams(0), dipc.WithMaxProviders(0), dipc.WithRegionBytes(0), dipc.WithRegionIdle(-1), dipc.WithCompression(77),
		dipc.WithSpin(-1), dipc.WithServerTransport("pigeon.wings", "2"), dipc.WithServerTransport("a\x00", "2"),
	} {
		_, err := dipc.NewServer(option)
		fails(t, err, dipc.ErrInvalidArgument, "")
	}
	tickets, err := server.Tickets()
	if err != nil || len(tickets) != 0 {
		t.Fatalf("%q is served, %v", tickets, err)
	}
}

// A table that is published is kept as long as it is served or held by a client, and no longer; the
// program may release it at once.
func TestPublishedTableIsKept(t *testing.T) {
	allocator := &counting{Allocator: memory.NewGoAllocator()}
	server, uri := newServer(t)
	batch := numbers(allocator, 0, 100_000)
	if err := server.Publish("table", numbersSchema, batch, batch); err != nil {
		t.Fatal(err)
	}
	batch.Release()
	got := get(t, uri, "table")
	if !got.Next() {
		t.Fatal(got.Err())
	}
	kept := got.RecordBatch()
	kept.Retain()
	if !got.Next() {
		t.Fatal(got.Err())
	}
	got.Release()
	if err := server.Withdraw("table"); err != nil {
		t.Fatal(err)
	}
	server.Close()
	if err := checkNumbers(kept, 0, 100_000); err != nil {
		t.Fatal(err)
	}
	kept.Release()
	eventually(t, "the table is released", func() bool { return allocator.blocks.Load() == 0 })
}

// counting counts blocks that are not freed.
type counting struct {
	memory.Allocator
	blocks atomic.Int64
}

func (c *counting) Allocate(size int) []byte {
	c.blocks.Add(1)
	return c.Allocator.Allocate(size)
}

func (c *counting) Free(bytes []byte) {
	c.blocks.Add(-1)
	c.Allocator.Free(bytes)
}

// Batches are released by the server once the client has given them back, also those of a client that
// went away in the middle.
func TestProvidedBatchesAreReleased(t *testing.T) {
	allocator := &counting{Allocator: memory.NewGoAllocator()}
	server, uri := newServer(t)
	err := server.Serve("table", provide(func() array.RecordReader {
		n := 0
		return &reader{schema: numbersSchema, next: func() (arrow.RecordBatch, error) {
			n++
			if n > 50 {
				return nil, nil
			}
			return numbers(allocator, 0, 10_000), nil
		}}
	}))
	if err != nil {
		t.Fatal(err)
	}
	var clients sync.WaitGroup
	for client := range 8 {
		clients.Go(func() {
			got, err := dipc.Get(testContext(t), uri, "table")
			if err != nil {
				t.Error(err)
				return
			}
			defer got.Release()
			for n := 0; got.Next() && (client%2 == 0 || n < 5); n++ {
				batch := got.RecordBatch()
				batch.Retain()
				// Released by another goroutine.
				clients.Go(func() {
					defer batch.Release()
					if err := checkNumbers(batch, 0, 10_000); err != nil {
						t.Error(err)
					}
				})
			}
			if got.Err() != nil {
				t.Error(got.Err())
			}
		})
	}
	clients.Wait()
	eventually(t, "every batch is released", func() bool { return allocator.blocks.Load() == 0 })
	eventually(t, "every buffer has been given back", func() bool {
		stats, err := server.Stats()
		return err == nil && stats.LentOutstanding == 0
	})
}

// One URI for metadata and one for bodies give the same table.
func TestTwoURIs(t *testing.T) {
	server, _ := newServer(t)
	publish(t, server, "table")
	metadata, err := server.Location(dipc.RoleMetadata)
	if err != nil {
		t.Fatal(err)
	}
	data, err := server.Location(dipc.RoleData)
	if err != nil {
		t.Fatal(err)
	}
	if rows := count(t, get(t, metadata, "table", dipc.WithDataURI(data))); rows != 10 {
		t.Fatalf("%d rows", rows)
	}
	_, err = server.Location(7)
	fails(t, err, dipc.ErrInvalidArgument, "")
}

// Shutdown waits for streams; when its context ends it cuts them.
func TestShutdown(t *testing.T) {
	server, uri := newServer(t)
	if err := server.Serve("endless", provide(func() array.RecordReader { return endless() })); err != nil {
		t.Fatal(err)
	}
	got := get(t, uri, "endless")
	if !got.Next() {
		t.Fatal(got.Err())
	}
	ctx, cancel := context.WithCancel(testContext(t))
	ended := make(chan error)
	go func() { ended <- server.Shutdown(ctx) }()
	eventually(t, "no new stream begins", func() bool {
		late, err := dipc.Get(testContext(t), uri, "endless")
		if err == nil {
			late.Release()
		}
		return err != nil
	})
	if !got.Next() {
		t.Fatalf("a stream under way was cut: %v", got.Err())
	}
	cancel()
	err := <-ended
	fails(t, err, dipc.ErrCancelled, "streams")
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("Shutdown says %v", err)
	}
	for got.Next() {
	}
	if got.Err() == nil {
		t.Fatal("a stream that was cut ended well")
	}

	idle, _ := newServer(t)
	if err := idle.Shutdown(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

// Options open a server to other users and machines, and have small bodies lent.
func TestServerOpenness(t *testing.T) {
	for scheme, openness := range map[string]dipc.ServerOption{
		"tcp": dipc.WithRemoteClients(), "ucx": dipc.WithTrustedNetwork(),
	} {
		if err := dipc.TransportAvailable(scheme); err != nil {
			t.Logf("%s is left out: %v", scheme, err)
			continue
		}
		address := scheme + "://0.0.0.0:0"
		closed, err := dipc.NewServer()
		if err != nil {
			t.Fatal(err)
		}
		defer closed.Close()
		_, err = closed.Listen(address)
		fails(t, err, dipc.ErrPermission, "")
		open, err := dipc.NewServer(openness)
		if err != nil {
			t.Fatal(err)
		}
		defer open.Close()
		if _, err := open.Listen(address); err != nil {
			t.Errorf("%s is refused: %v", scheme, err)
		}
	}

	if address(t)[:4] != "shm:" {
		t.Skip("memory is lent over shm alone")
	}
	server, uri := newServer(t, dipc.WithLentBodies())
	publish(t, server, "table")
	if rows := count(t, get(t, uri, "table")); rows != 10 {
		t.Fatalf("%d rows", rows)
	}
	stats, err := server.Stats()
	if err != nil || stats.BytesSent != 0 || stats.BytesCopied == 0 {
		t.Fatalf("a small body was not lent: %+v, %v", stats, err)
	}
}

// Figures are counted by label, and the text has them.
func TestFigures(t *testing.T) {
	server, uri := newServer(t)
	err := server.Serve("counted", func(ctx context.Context, _ string) (array.RecordReader, error) {
		if err := dipc.SetLabel(ctx, ""); !errors.Is(err, dipc.ErrInvalidArgument) {
			t.Errorf("an empty label gave %v", err)
		}
		if err := dipc.SetLabel(ctx, "a label"); err != nil {
			return nil, err
		}
		sent := false
		return &reader{schema: numbersSchema, release: func() {}, next: func() (arrow.RecordBatch, error) {
			if sent {
				return nil, nil
			}
			sent = true
			return numbers(memory.DefaultAllocator, 0, 10), nil
		}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if rows := count(t, get(t, uri, "counted")); rows != 10 {
		t.Fatalf("%d rows", rows)
	}
	eventually(t, "the request has ended", func() bool {
		stats, err := server.Stats()
		return err == nil && stats.RequestsFinished == 1 && stats.Rows == 10
	})
	text, err := server.StatsText()
	if err != nil || !strings.Contains(text, "\ndipc_rows_sent_total{ticket=\"a label\"} 10\n") {
		t.Fatalf("%v: %s", err, text)
	}
	if err := dipc.SetLabel(context.Background(), "a label"); err == nil {
		t.Fatal("any context takes a label")
	}
}

// The place of a client that has gone is free even if its provider still runs, and the number of such providers is
// bounded.
func TestStuckProviders(t *testing.T) {
	server, uri := newServer(t, dipc.WithMaxStreams(1), dipc.WithMaxProviders(2))
	letGo := make(chan struct{})
	defer close(letGo)
	stuck := func(context.Context, string) (array.RecordReader, error) {
		<-letGo
		return nil, dipc.ErrCancelled
	}
	if err := server.Serve("stuck", stuck); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := dipc.Get(testContext(t), uri, "stuck", dipc.WithStallTimeout(50*time.Millisecond))
		fails(t, err, dipc.ErrTimeout, "")
		eventually(t, "the place is free", func() bool {
			stats, err := server.Stats()
			return err == nil && stats.StreamsActive == 0
		})
	}
	// With a deadline it would ask again.
	_, err := dipc.Get(context.Background(), uri, "stuck")
	fails(t, err, dipc.ErrBusy, "max_providers")
}

// A server that serves as many streams as it may says so, and options reach the library.
func TestServerOptions(t *testing.T) {
	options := []dipc.ServerOption{dipc.WithMaxStreams(1), dipc.WithInlineBytes(0), dipc.WithMaxLentBytes(1 << 20),
		dipc.WithMaxRegionBytes(1 << 30), dipc.WithRegionBytes(1 << 20), dipc.WithRegionIdle(0),
		dipc.WithSpin(time.Microsecond)}
	if dipc.TransportAvailable("ucx") == nil {
		options = append(options, dipc.WithServerTransport("ucx.TLS", "tcp"))
	}
	server, uri := newServer(t, options...)
	if err := server.Serve("endless", provide(func() array.RecordReader { return endless() })); err != nil {
		t.Fatal(err)
	}
	got := get(t, uri, "endless")
	if !got.Next() {
		t.Fatal(got.Err())
	}
	// With a deadline it would ask again.
	_, err := dipc.Get(context.Background(), uri, "endless")
	fails(t, err, dipc.ErrBusy, "")
	got.Release()
	for _, option := range []dipc.ServerOption{
		dipc.WithPackedBodies(), dipc.WithCompression(dipc.LZ4), dipc.WithCompression(dipc.ZSTD),
	} {
		server, uri := newServer(t, option)
		batch := numbers(memory.DefaultAllocator, 0, 100_000)
		defer batch.Release()
		if err := server.Publish("table", numbersSchema, batch); err != nil {
			t.Fatal(err)
		}
		if rows := count(t, get(t, uri, "table")); rows != 100_000 {
			t.Fatalf("%d rows", rows)
		}
		stats, err := server.Stats()
		if err != nil || stats.BytesSent == 0 || stats.BytesLent+stats.BytesCopied != 0 {
			t.Fatalf("bodies did not travel as bytes: %+v, %v", stats, err)
		}
	}
}

// Promise of Drain: clients are led to the server that it names; if it names none, they are told why they get nothing.
// Promise of ListenFile: clients connect through a socket that the host made.
func TestAServerThatDrainsLeadsElsewhere(t *testing.T) {
	drains, uri := newServer(t)
	other, elsewhere := newServer(t)
	for _, server := range []*dipc.Server{drains, other} {
		if err := server.Publish("table", numbersSchema, numbers(memory.DefaultAllocator, 0, 100)); err != nil {
			t.Fatal(err)
		}
		if !server.IsReady() {
			t.Fatal("a server that listens is not ready")
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.ListenFile("shm", file); !errors.Is(err, dipc.ErrInvalidArgument) {
		t.Fatalf("a TCP socket for shm: %v", err)
	}
	tcp, err := other.ListenFile("tcp", file)
	if err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	_ = listener.Close()
	for _, next := range []string{elsewhere, tcp} {
		if err := drains.Drain(next); err != nil {
			t.Fatal(err)
		}
		get(t, uri, "table").Release()
	}
	if err := drains.Drain(); err != nil {
		t.Fatal(err)
	}
	if drains.IsReady() {
		t.Fatal("a server that drains is ready")
	}
	if _, err := dipc.Get(t.Context(), uri, "table"); !errors.Is(err, dipc.ErrBusy) {
		t.Fatalf("got %v", err)
	}
}
