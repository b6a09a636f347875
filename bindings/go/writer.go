package dipc

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Put asks the server at uri to take a table, with a client that the program shares. descriptor names the
// table for the server's program and may be any bytes. It returns once the server has accepted, or with
// the reason why not: until then nothing of the table is sent.
//
// ctx governs the whole table, not only this call, and the server's program is told its deadline. The
// writer must be closed.
func Put(ctx context.Context, uri, descriptor string, schema *arrow.Schema, options ...PutOption) (*Writer, error) {
	client, err := shared()
	if err != nil {
		return nil, err
	}
	return client.Put(ctx, uri, descriptor, schema, options...)
}

// Put is the package's [Put] with this client.
func (c *Client) Put(
	ctx context.Context, uri, descriptor string, schema *arrow.Schema, options ...PutOption,
) (*Writer, error) {
	if err := mayBegin(ctx); err != nil {
		return nil, err
	}
	if schema == nil {
		return nil, invalid("the schema is nil")
	}
	described := (*C.struct_ArrowSchema)(C.calloc(1, C.sizeof_struct_ArrowSchema))
	defer C.free(unsafe.Pointer(described))
	defer C.dipcgo_schema_release(described)
	if err := exportSchema(schema, described); err != nil {
		return nil, err
	}
	r := &putRequest{}
	defer r.free()
	if err := r.fill(ctx, uri, options); err != nil {
		return nil, err
	}
	var object *C.dipc_put
	cancel, err := c.call(ctx, func(client *C.dipc_client, cancel *C.dipc_cancel, out **C.dipc_pending, failure **C.dipc_error) C.dipc_status {
		name, length := cBytes(descriptor)
		return C.dipc_client_start_put(client, &r.uri, 1, name, length, r.options, cancel, described,
			C.ARROW_DEVICE_CPU, out, failure)
	}, func(pending *C.dipc_pending, failure **C.dipc_error) C.dipc_status {
		return C.dipc_pending_try_put(pending, &object, failure)
	})
	if err != nil {
		return nil, err
	}
	return newWriter(ctx, schema, object, cancel), nil
}

// Writer sends the batches of one table to a server. A table is complete when Finish has returned without an error; a
// table that is closed before fails.
//
// Any goroutine may call its methods, also at once: one may wait for results while another writes. Calls that wait
// occupy no thread of the system. Their context ends only the wait, and the table goes on.
type Writer struct {
	ctx    context.Context
	schema *arrow.Schema
	handle *handle[*C.dipc_put]
	cancel *token
	room   *readiness
	one    *sync.Mutex // held during each call of the library's
}

func newWriter(ctx context.Context, schema *arrow.Schema, object *C.dipc_put, cancel *token) *Writer {
	one := new(sync.Mutex)
	room := newReadiness(func(fd *C.int, failure **C.dipc_error) C.dipc_status {
		one.Lock()
		defer one.Unlock()
		return C.dipc_put_fd(object, fd, failure)
	})
	w := &Writer{ctx: ctx, schema: schema, cancel: cancel, room: room, one: one}
	w.handle = newHandle("writer", object, func(object *C.dipc_put) {
		C.dipc_put_free(object)
		room.close()
		cancel.free()
	})
	runtime.AddCleanup(w, func(h *handle[*C.dipc_put]) { h.close(nil) }, w.handle)
	return w
}

// Schema is the schema of the batches.
func (w *Writer) Schema() *arrow.Schema { return w.schema }

// Write sends a batch, and waits until the server has room for it. The batch is retained until the server
// has given it back. Custom metadata of an arrow.RecordBatchWithMetadata go with it. If ctx ends first,
// nothing was sent and the table goes on.
func (w *Writer) Write(ctx context.Context, batch arrow.RecordBatch) error {
	if batch == nil {
		return invalid("the batch is nil")
	}
	if err := sameColumns(w.schema, batch.Schema()); err != nil {
		return err
	}
	array := (*C.struct_ArrowDeviceArray)(C.calloc(1, C.sizeof_struct_ArrowDeviceArray))
	defer C.free(unsafe.Pointer(array))
	if err := exportBatch(batch, array, nil); err != nil {
		return err
	}
	defer C.dipcgo_array_release(&array.array)
	return w.wait(ctx, w.room.try, func(object *C.dipc_put, failure **C.dipc_error) C.dipc_status {
		return C.dipc_put_push(object, array, nil, 0, 0, failure)
	})
}

// WriteAll sends the batches of a reader, which stays the caller's. A failure of the reader fails the
// table.
func (w *Writer) WriteAll(ctx context.Context, reader array.RecordReader) error {
	for reader.Next() {
		if err := w.Write(ctx, reader.RecordBatch()); err != nil {
			return err
		}
	}
	err := reader.Err()
	if err == nil || err == io.EOF { // a wrapped EOF is a failure
		return nil
	}
	w.Fail(err)
	return err
}

// Result says that the server's program has a part of a table safe, whatever happens to the rest.
type Result struct {
	Batches uint64 // from the first on
	Bytes   []byte // of the server's program
}

// NextResult waits for the next result; [io.EOF] if the server has taken the whole table and all results were given.
// Results that are left can be read after Finish, and after a failure; the failure comes after the last of them. A call
// that waits here lets the other methods go first.
func (w *Writer) NextResult(ctx context.Context) (*Result, error) {
	var result *Result
	err := w.wait(ctx, w.room.tryLast, func(object *C.dipc_put, failure **C.dipc_error) C.dipc_status {
		var batches C.uint64_t
		status := C.dipc_put_next_result(object, 0, &batches, failure)
		if status == C.DIPC_NOTHING {
			return C.DIPC_OK // the end
		}
		if status != C.DIPC_OK {
			return status
		}
		text, status := readBytes(func(buffer *C.uint8_t, size C.size_t, length *C.size_t) C.dipc_status {
			return C.dipc_put_result(object, buffer, size, length, nil)
		})
		result = &Result{Batches: uint64(batches), Bytes: []byte(text)}
		return status
	})
	if err == nil && result == nil {
		err = io.EOF
	}
	return result, err
}

// Finish ends the table, and waits until the server's program has taken all of it. It gives the number of
// batches taken. If ctx ends first it may be called again.
func (w *Writer) Finish(ctx context.Context) (batches uint64, err error) {
	var taken C.uint64_t
	err = w.wait(ctx, w.room.try, func(object *C.dipc_put, failure **C.dipc_error) C.dipc_status {
		return C.dipc_put_finish(object, 0, &taken, failure)
	})
	return uint64(taken), err
}

// Fail ends the table with an error, which the server's program sees. A call that waits in another
// goroutine ends. After the end of the table it does nothing.
func (w *Writer) Fail(err error) {
	if err == nil {
		err = errors.New("the table failed without a reason")
	}
	words := cWords(textOf(err))
	defer C.free(unsafe.Pointer(words))
	// A writer that is closed has failed the table already.
	_ = w.call(func(object *C.dipc_put, failure **C.dipc_error) C.dipc_status {
		return C.dipc_put_fail(object, C.int32_t(statusOf(err)), words, failure)
	})
}

// Close fails the table, unless it was finished or has failed. Batches that the server still has stay
// retained until it gives them back. It may be called again, and always returns nil.
func (w *Writer) Close() error {
	// A call that waits ends.
	w.handle.close(func(object *C.dipc_put) {
		w.one.Lock()
		over := bool(C.dipc_put_is_over(object))
		w.one.Unlock()
		if !over { // the answer of an exchange may still be read
			w.cancel.trigger()
		}
	})
	return nil
}

// Headers gives the headers of the server's answers so far; nil if there are none.
func (w *Writer) Headers() (headers Headers, err error) {
	object, err := w.handle.use()
	if err != nil {
		return nil, err
	}
	defer w.handle.done()
	w.one.Lock()
	defer w.one.Unlock()
	return readHeaders(func(out **C.dipc_headers, failure **C.dipc_error) C.dipc_status {
		return C.dipc_put_headers(object, out, failure)
	})
}

// WriterStats are the figures of a table that is sent.
type WriterStats struct {
	Batches         uint64 // sent
	BytesLent       uint64 // body bytes that the server was lent where they lay
	BytesCopied     uint64 // body bytes that were copied here, to be lent from the copy or sent
	BytesSent       uint64 // body bytes sent through the connection
	LentOutstanding uint64 // buffers that the server has and has not given back
}

// Stats gives the figures so far.
func (w *Writer) Stats() (WriterStats, error) {
	var stats WriterStats
	err := w.call(func(object *C.dipc_put, failure **C.dipc_error) C.dipc_status {
		return readStats(failure, func(stat C.int32_t, out *C.uint64_t, failure **C.dipc_error) C.dipc_status {
			return C.dipc_put_stat(object, stat, out, failure)
		}, map[C.int32_t]*uint64{
			C.DIPC_PUT_STAT_BATCHES:          &stats.Batches,
			C.DIPC_PUT_STAT_BYTES_LENT:       &stats.BytesLent,
			C.DIPC_PUT_STAT_BYTES_COPIED:     &stats.BytesCopied,
			C.DIPC_PUT_STAT_BYTES_SENT:       &stats.BytesSent,
			C.DIPC_PUT_STAT_LENT_OUTSTANDING: &stats.LentOutstanding,
		})
	})
	return stats, err
}

// call makes a call that does not wait.
func (w *Writer) call(run func(object *C.dipc_put, failure **C.dipc_error) C.dipc_status) error {
	object, err := w.handle.use()
	if err != nil {
		return err
	}
	defer w.handle.done()
	w.one.Lock()
	defer w.one.Unlock()
	var failure *C.dipc_error
	status := run(object, &failure)
	return check(status, failure)
}

// wait makes a call, and makes it again until the server lets it end.
func (w *Writer) wait(
	ctx context.Context,
	try func(ctx context.Context, call func(failure **C.dipc_error) C.dipc_status) error,
	run func(object *C.dipc_put, failure **C.dipc_error) C.dipc_status,
) error {
	object, err := w.handle.use()
	if err != nil {
		return err
	}
	defer w.handle.done()
	wait := ctx
	if ctx == w.ctx {
		wait = context.Background() // the descriptor shows the end of the table's own context
	}
	err = try(wait, func(failure **C.dipc_error) C.dipc_status {
		w.one.Lock()
		defer w.one.Unlock()
		status := run(object, failure)
		if status != C.DIPC_ERR_TIMEOUT || bool(C.dipc_put_is_over(object)) {
			return status
		}
		C.dipc_error_free(*failure)
		*failure = nil
		return C.DIPC_NOTHING
	})
	if err = w.handle.explain(err); err == nil || ctx == nil {
		return err
	}
	return withContext(w.ctx, withContext(ctx, err))
}
