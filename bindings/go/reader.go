package dipc

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Reader reads the batches of one stream. It is an [array.RecordReader]: the batch that Next made
// current is released by the next call, unless it was retained. One that is released before its end
// cancels the stream.
//
// Next is for one goroutine at a time. Another goroutine may call Release meanwhile, which ends Next.
type Reader struct {
	ctx        context.Context
	schema     atomic.Pointer[arrow.Schema] // nil: the schema of an exchange has not come yet
	references atomic.Int64
	cleanup    runtime.Cleanup
	cancel     *token

	mu      sync.Mutex
	stream  *stream // nil once released
	current arrow.RecordBatch
	err     error
	ended   bool
}

var _ array.RecordReader = (*Reader)(nil)

// newReader reads the schema and takes s over; on failure s is still the caller's.
func newReader(ctx context.Context, s *stream) (*Reader, error) {
	if err := s.readSchema(); err != nil {
		return nil, err
	}
	r := makeReader(ctx, s)
	r.schema.Store(s.schema)
	return r, nil
}

// makeReader takes s over, whose schema may come later.
func makeReader(ctx context.Context, s *stream) *Reader {
	r := &Reader{ctx: ctx, cancel: s.cancel, stream: s}
	r.references.Store(1)
	// The current batch is not released with the reader: the program may still use the batch after it has dropped the
	// reader.
	r.cleanup = runtime.AddCleanup(r, (*stream).close, s)
	return r
}

// Retain adds a reference, for one more Release.
func (r *Reader) Retain() {
	r.references.Add(1)
}

// Release takes a reference away. The last one cancels what has not arrived and releases the current
// batch; further ones do nothing.
func (r *Reader) Release() {
	if r.references.Add(-1) != 0 {
		return
	}
	if !r.mu.TryLock() {
		// Another goroutine is in Next, and may wait there for long.
		r.cancel.trigger()
		r.mu.Lock()
	}
	defer r.mu.Unlock()
	if r.stream == nil {
		return // Retain came after the last Release
	}
	r.cleanup.Stop()
	r.stream.close()
	r.stream = nil
	r.dropCurrent()
}

// Schema is the schema of the batches. In an exchange it may come later than the reader. Schema then waits, and
// occupies a thread of the system. It is nil if no schema comes; then Err says why.
func (r *Reader) Schema() *arrow.Schema {
	if schema := r.schema.Load(); schema != nil {
		return schema
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stream == nil || r.err != nil {
		return r.schema.Load()
	}
	if err := r.stream.waitSchema(); err != nil {
		r.err = r.explain(err)
		return nil
	}
	r.schema.Store(r.stream.schema)
	return r.stream.schema
}

// explain is why the stream has failed.
func (r *Reader) explain(err error) error {
	if r.references.Load() <= 0 {
		return closed("reader")
	}
	return withContext(r.ctx, err)
}

// Next waits for the next batch and makes it the current one. It returns false at the end and after a failure; Err
// tells which of the two it was.
func (r *Reader) Next() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropCurrent()
	switch {
	case r.stream == nil:
		r.err = closed("reader")
		return false
	case r.ended || r.err != nil:
		return false
	case r.ctx.Err() != nil:
		r.err = contextEnded(r.ctx, "the stream")
		return false
	}
	batch, err := r.stream.next()
	if err != nil {
		r.err = r.explain(err)
		return false
	}
	if r.schema.Load() == nil {
		r.schema.Store(r.stream.schema)
	}
	r.current, r.ended = batch, batch == nil
	return !r.ended
}

// RecordBatch is the current batch; nil before the first Next and after a Next that returned false. Retain it to keep
// it past the next call of Next.
func (r *Reader) RecordBatch() arrow.RecordBatch {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// Record is RecordBatch.
//
// Deprecated: it is there for [array.RecordReader]; use RecordBatch.
func (r *Reader) Record() arrow.RecordBatch { return r.RecordBatch() }

// Err is why Next returned false; nil at the end of the stream.
func (r *Reader) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// StreamStats are the figures of a stream.
type StreamStats struct {
	Rows          uint64 // read
	Batches       uint64 // read
	BytesLent     uint64 // body bytes that the server lent and this process mapped
	BytesCopied   uint64 // body bytes copied in this process: joined dictionaries, values to be checked
	BytesReceived uint64 // body bytes that came through the connection

	BytesCopiedOnDevice uint64 // body bytes copied in this process on a device, or between devices
	BytesStaged         uint64 // body bytes copied in this process between the host and a device

	BatchesHere uint64 // batches that the next calls of Next give without waiting for the server
}

// Stats gives the stream's figures so far.
func (r *Reader) Stats() (StreamStats, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stream == nil {
		return StreamStats{}, closed("reader")
	}
	return r.stream.stats()
}

// Headers gives the headers of the server's answer: those that came with the schema and, after a failure, those that
// came with the failure; nil if there are none.
func (r *Reader) Headers() (Headers, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stream == nil {
		return nil, closed("reader")
	}
	return r.stream.headers()
}

// dropCurrent releases the current batch; r.mu is held.
func (r *Reader) dropCurrent() {
	if r.current != nil {
		r.current.Release()
		r.current = nil
	}
}
