package dipc

// #include "shim.h"
import "C"

import (
	"context"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
)

// Source is a table that a client sends by [Put] or [Exchange]: to [Handler.Put] or [Handler.Exchange], or
// with a [Request] of [VerbPut] or [VerbExchange]. It
// is valid until the request is answered; batches that were read outlive it. Any goroutine may call its
// methods, also at once.
type Source struct {
	context *requestContext
	handle  *handle[*C.dipc_request]
}

// takeTable calls take with the source of a provider's request.
func takeTable(context *requestContext, take func(*Source) error) error {
	source, drop := newSource(context)
	defer drop()
	return take(source)
}

// newSource gives the source of a provider's request. drop lets no further call use it, and waits for
// those under way.
func newSource(context *requestContext) (source *Source, drop func()) {
	unused := make(chan struct{})
	own := newHandle("request", context.request, func(*C.dipc_request) { close(unused) })
	return &Source{context: context, handle: own}, func() {
		own.close(nil)
		<-unused
	}
}

func (s *Source) call(run func(object *C.dipc_request, failure **C.dipc_error) C.dipc_status) error {
	object, err := s.handle.use()
	if err != nil {
		return err
	}
	defer s.handle.done()
	var failure *C.dipc_error
	status := run(object, &failure)
	return check(status, failure)
}

// Schema is the schema of the table, for a program that decides by it whether to accept the table. It is there at once;
// after Accept, call [Reader.Schema] instead.
func (s *Source) Schema() (*arrow.Schema, error) {
	described := (*C.struct_ArrowSchema)(C.calloc(1, C.sizeof_struct_ArrowSchema))
	defer C.free(unsafe.Pointer(described))
	err := s.call(func(object *C.dipc_request, failure **C.dipc_error) C.dipc_status {
		return C.dipc_request_source_schema(object, described, failure)
	})
	if err != nil {
		return nil, err
	}
	_, schema, err := importSchema(described)
	return schema, err
}

// Accept takes the table: from now on the client sends batches, as fast as they are read. A table that is accepted must
// be read to its end, unless the request fails. One that its client leaves or fails ends with an error, never normally.
//
// ctx ends the reading. The reader must be released.
func (s *Source) Accept(ctx context.Context) (*Reader, error) {
	if err := mayBegin(ctx); err != nil {
		return nil, err
	}
	read := &stream{
		object: (*C.struct_ArrowDeviceArrayStream)(C.calloc(1, C.sizeof_struct_ArrowDeviceArrayStream)),
		batch:  (*C.struct_ArrowDeviceArray)(C.calloc(1, C.sizeof_struct_ArrowDeviceArray)),
	}
	err := s.call(func(object *C.dipc_request, failure **C.dipc_error) C.dipc_status {
		return C.dipc_request_source(object, read.object, failure)
	})
	if err == nil {
		err = read.watch()
	}
	if err != nil {
		read.close()
		return nil, err
	}
	if ctx == context.Context(s.context) {
		ctx = context.Background() // the stream reports the end of the request, and its reason
	}
	ended, ready := new(atomic.Bool), read.ready
	read.ended = ended
	read.cancel = newWakingToken(ctx, func() {
		ended.Store(true)
		ready.endAt(time.Now())
	})
	r, err := newReader(ctx, read)
	if err != nil {
		read.close()
		return nil, err
	}
	return r, nil
}

// Result tells the client that this many first batches of its table are safe: the program has them, whatever happens to
// the rest. The bytes are for the client's program, at most 32 KiB. [Writer.NextResult] gives both.
func (s *Source) Result(batches uint64, bytes []byte) error {
	return s.call(func(object *C.dipc_request, failure **C.dipc_error) C.dipc_status {
		first := (*C.uint8_t)(pointer(bytes))
		return C.dipc_request_result(object, C.uint64_t(batches), first, C.size_t(len(bytes)), failure)
	})
}
