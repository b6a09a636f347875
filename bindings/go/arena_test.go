package dipc_test

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

func newArena(t testing.TB, options ...dipc.ArenaOption) *dipc.Arena {
	t.Helper()
	arena, err := dipc.NewArena(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { arena.Close() })
	return arena
}

// Tables built with an arena are lent where they lie: not one byte is copied. Others are copied once.
func TestArenaIsLentWithoutACopy(t *testing.T) {
	if address(t)[:4] != "shm:" {
		t.Skip("memory is lent over shm alone")
	}
	arena := newArena(t)
	for _, c := range []struct {
		name      string
		allocator memory.Allocator
		copied    bool
	}{{"arena", arena, false}, {"heap", memory.NewGoAllocator(), true}} {
		t.Run(c.name, func(t *testing.T) {
			server, uri := newServer(t)
			batch := numbers(c.allocator, 0, 100_000)
			defer batch.Release()
			if err := server.Publish("published", numbersSchema, batch); err != nil {
				t.Fatal(err)
			}
			if err := server.Serve("provided", provide(func() array.RecordReader {
				r, err := array.NewRecordReader(numbersSchema, []arrow.RecordBatch{batch})
				if err != nil {
					panic(err)
				}
				return r
			})); err != nil {
				t.Fatal(err)
			}
			for _, ticket := range []string{"published", "provided"} {
				before, err := server.Stats()
				if err != nil {
					t.Fatal(err)
				}
				got := get(t, uri, ticket)
				if !got.Next() {
					t.Fatal(got.Err())
				}
				if err := checkNumbers(got.RecordBatch(), 0, 100_000); err != nil {
					t.Fatal(err)
				}
				after, err := server.Stats()
				if err != nil {
					t.Fatal(err)
				}
				lent, copied := after.BytesLent-before.BytesLent, after.BytesCopied-before.BytesCopied
				if c.copied && (lent != 0 || copied < 800_000) || !c.copied && (lent < 800_000 || copied != 0) {
					t.Fatalf("%s: %d bytes lent, %d copied", ticket, lent, copied)
				}
				stats, err := got.Stats()
				if err != nil || stats.BytesLent < 800_000 || stats.BytesCopied+stats.BytesReceived != 0 {
					t.Fatalf("%s: the client copied: %+v, %v", ticket, stats, err)
				}
				got.Release()
			}
		})
	}
}

// Blocks are zero when they come, also those that were used before, keep what they hold when they
// grow, and may be freed after Close.
func TestArenaBlocks(t *testing.T) {
	arena := newArena(t)
	for range 3 {
		block := arena.Allocate(1000)
		if slices.ContainsFunc(block, func(b byte) bool { return b != 0 }) {
			t.Fatal("a block is not zero")
		}
		for i := range block {
			block[i] = byte(i)
		}
		block = arena.Reallocate(2000, block)
		if len(block) != 2000 || block[999] != byte(999%256) || slices.Max(block[1000:]) != 0 {
			t.Fatal("a block that grew is not what it was")
		}
		block = arena.Reallocate(10, block)
		block = arena.Reallocate(20, block)
		if len(block) != 20 || block[9] != 9 || block[10] != 0 {
			t.Fatal("a block that shrank is not what it was")
		}
		arena.Free(block)
	}
	if empty := arena.Allocate(0); len(empty) != 0 || empty == nil {
		t.Fatalf("%v", empty)
	} else {
		arena.Free(empty)
	}
	if stats, err := arena.Stats(); err != nil || stats.UsedBytes != 0 || stats.MappedBytes == 0 {
		t.Fatalf("%+v, %v", stats, err)
	}
	late := arena.Allocate(100)
	arena.Close()
	late[99] = 1
	arena.Free(late)
	fails(t, panicOf(func() { arena.Free(late) }), dipc.ErrInvalidArgument, "")
	fails(t, panicOf(func() { arena.Free(make([]byte, 10)) }), dipc.ErrInvalidArgument, "")
	fails(t, panicOf(func() { arena.Allocate(-1) }), dipc.ErrInvalidArgument, "")
	fails(t, panicOf(func() { arena.Reallocate(-1, nil) }), dipc.ErrInvalidArgument, "")
	for _, option := range []dipc.ArenaOption{dipc.WithArenaRegionBytes(0)} {
		_, err := dipc.NewArena(option)
		fails(t, err, dipc.ErrInvalidArgument, "")
	}
}

// An arena that is full is a panic of the allocator, and in a provider the end of its stream alone.
func TestArenaIsFull(t *testing.T) {
	arena := newArena(t, dipc.WithArenaRegionBytes(1<<16), dipc.WithArenaMaxBytes(1<<16))
	err := panicOf(func() { arena.Allocate(1 << 20) })
	fails(t, err, dipc.ErrOutOfMemory, "")
	if errors.Is(err, dipc.ErrClosed) {
		t.Fatal("a full arena is not a closed one")
	}
	server, uri := newServer(t)
	if err := server.Serve("large", provide(func() array.RecordReader {
		return &reader{schema: numbersSchema, next: func() (arrow.RecordBatch, error) {
			return numbers(arena, 0, 1<<20), nil
		}}
	})); err != nil {
		t.Fatal(err)
	}
	got := get(t, uri, "large")
	if got.Next() {
		t.Fatal("there is no memory for it")
	}
	fails(t, got.Err(), dipc.ErrOutOfMemory, "the provider panicked")
	arena.Free(arena.Allocate(100))
}

// An arena is used by many goroutines at once, and collected when it is forgotten, though not the
// blocks in use.
func TestArenaIsShared(t *testing.T) {
	var block []byte
	func() {
		arena, err := dipc.NewArena()
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for first := range 8 {
			all.Go(func() {
				for range 20 {
					batch := numbers(arena, first, 1000)
					if err := checkNumbers(batch, first, 1000); err != nil {
						t.Error(err)
					}
					batch.Release()
				}
			})
		}
		all.Wait()
		block = arena.Allocate(1 << 20)
	}()
	for range 3 {
		runtime.GC()
	}
	for i := range block {
		block[i] = byte(i)
	}
	other := newArena(t)
	other.Free(block) // every arena finds it
}
