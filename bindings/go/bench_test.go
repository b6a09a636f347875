package dipc_test

import (
	"testing"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// BenchmarkBatches fetches batches of one column from a provider of the same process: what a batch
// costs, for memory that is lent where it lies and for memory of the Go heap, which is copied.
func BenchmarkBatches(b *testing.B) {
	arena, err := dipc.NewArena()
	if err != nil {
		b.Fatal(err)
	}
	defer arena.Close()
	for _, c := range []struct {
		name      string
		allocator memory.Allocator
		rows      int
	}{
		{"arena/8KB", arena, 1 << 10}, {"arena/8MB", arena, 1 << 20}, {"heap/8KB", memory.NewGoAllocator(), 1 << 10},
		{"heap/8MB", memory.NewGoAllocator(), 1 << 20},
	} {
		b.Run(c.name, func(b *testing.B) {
			server, uri := newServer(b)
			batch := numbers(c.allocator, 0, c.rows)
			defer batch.Release()
			left := b.N
			if err := server.Serve("batches", provide(func() array.RecordReader {
				return &reader{schema: numbersSchema, next: func() (arrow.RecordBatch, error) {
					if left == 0 {
						return nil, nil
					}
					left--
					batch.Retain()
					return batch, nil
				}}
			})); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(c.rows) * 8)
			b.ReportAllocs()
			b.ResetTimer()
			if rows := count(b, get(b, uri, "batches")); rows != int64(b.N)*int64(c.rows) {
				b.Fatalf("%d rows", rows)
			}
		})
	}
}
