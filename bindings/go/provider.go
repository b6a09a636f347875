package dipc

// #include <errno.h>
// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/cgo"
	"strings"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Provider opens the table that a client asks for. It is called once for each stream, on a thread of
// the library's that then also reads the table, so it may block; several run at the same time.
//
// The server takes the reader over and releases it. ctx ends when the client has gone or has cancelled, at the client's
// deadline, and when the stream is over; [RequestHeaders], [AddHeaders] and [RequestPeer] take it. An error, also one
// of the reader's, becomes the error of the client's stream, with its text after "the server: ". The status is that of
// the error ([ErrNotFound] and the like), or [ErrProvider] if it has none. A panic becomes such an error too.
type Provider func(ctx context.Context, ticket string) (array.RecordReader, error)

// service answers the requests that the library passes on.
type service interface {
	// answer fills out. If Go gives the batches, p becomes the stream's producer.
	answer(p *producer, out *C.struct_ArrowDeviceArrayStream) error
}

// ticketService is a provider and the ticket it is served under.
type ticketService struct {
	provider Provider
	ticket   string
}

func (s *ticketService) answer(p *producer, out *C.struct_ArrowDeviceArrayStream) error {
	return p.open(s.provider, s.ticket, out)
}

// producer is one stream of a provider, and the request that it answers.
type producer struct {
	request *requestContext
	reader  array.RecordReader
	schema  *arrow.Schema
	drop    func() // ends the use of an exchange's source; nil elsewhere
}

// What a callback returns when it has failed; dipc_request_fail() gives the text.
const failed = C.EIO

//export dipcgoProvide
func dipcgoProvide(handle C.uintptr_t, request *C.dipc_request, out *C.struct_ArrowDeviceArrayStream) (code C.int32_t) {
	p := &producer{request: newRequestContext(request)}
	defer func() {
		if reason := recover(); reason != nil {
			code = p.panicked(reason)
		}
		if code != 0 {
			p.end()
		}
	}()
	err := p.request.read()
	if err == nil {
		err = cgo.Handle(handle).Value().(service).answer(p, out)
	}
	if err != nil {
		return p.fail(err)
	}
	if p.reader == nil {
		p.end() // nobody will ask this producer
	}
	return 0
}

// open fills out with the stream of a provider's reader.
func (p *producer) open(provider Provider, ticket string, out *C.struct_ArrowDeviceArrayStream) (err error) {
	if p.reader, err = provider(p.request, ticket); err != nil {
		return err
	}
	if p.reader == nil {
		return errors.New("the provider gave neither a reader nor an error")
	}
	if p.schema = p.reader.Schema(); p.schema == nil {
		return errors.New("the provider's reader has no schema")
	}
	C.dipcgo_stream_fill(out, C.uintptr_t(cgo.NewHandle(p)))
	return nil
}

// exchange is open for a provider that reads the client's table too, until the stream is over.
func (p *producer) exchange(
	provider func(ctx context.Context, descriptor string, source *Source) (array.RecordReader, error),
	descriptor string, out *C.struct_ArrowDeviceArrayStream,
) error {
	source, drop := newSource(p.request)
	p.drop = drop
	return p.open(func(ctx context.Context, descriptor string) (array.RecordReader, error) {
		return provider(ctx, descriptor, source)
	}, descriptor, out)
}

//export dipcgoProduceSchema
func dipcgoProduceSchema(handle C.uintptr_t, out *C.struct_ArrowSchema) (code C.int) {
	p := cgo.Handle(handle).Value().(*producer)
	defer func() {
		if reason := recover(); reason != nil {
			code = C.int(p.panicked(reason))
		}
	}()
	if err := exportSchema(p.schema, out); err != nil {
		return C.int(p.fail(err))
	}
	return 0
}

//export dipcgoProduceNext
func dipcgoProduceNext(handle C.uintptr_t, out *C.struct_ArrowDeviceArray) (code C.int) {
	p := cgo.Handle(handle).Value().(*producer)
	defer func() {
		if reason := recover(); reason != nil {
			code = C.int(p.panicked(reason))
		}
	}()
	if !p.reader.Next() {
		if err := p.reader.Err(); err != nil && err != io.EOF { // a wrapped EOF is a failure
			return C.int(p.fail(err))
		}
		return 0 // out is cleared, which is the end
	}
	batch := p.reader.RecordBatch()
	if err := sameColumns(p.schema, batch.Schema()); err != nil {
		return C.int(p.fail(err))
	}
	if err := exportBatch(batch, out, nil); err != nil {
		return C.int(p.fail(err))
	}
	return 0
}

//export dipcgoProduceEnd
func dipcgoProduceEnd(handle C.uintptr_t) {
	take[*producer](handle).end()
}

//export dipcgoForget
func dipcgoForget(handle C.uintptr_t) {
	take[any](handle)
}

// take deletes a handle and gives what it stood for.
func take[T any](handle C.uintptr_t) T {
	h := cgo.Handle(handle)
	defer h.Delete()
	return h.Value().(T)
}

// end releases what the producer holds; the request is not valid after it.
func (p *producer) end() {
	defer p.request.end()
	if p.drop != nil {
		defer p.drop()
	}
	defer shield("releasing a provider's reader")
	if p.reader != nil {
		p.reader.Release()
	}
}

// fail tells the client why there is no stream, or no more of it.
func (p *producer) fail(err error) C.int32_t {
	tellFailure(p.request.request, err)
	return failed
}

func (p *producer) panicked(reason any) C.int32_t {
	status := ErrProvider
	if err, ok := reason.(error); ok {
		status = statusOf(err)
	}
	tell(p.request.request, status, fmt.Sprintf("the provider panicked: %v", reason))
	return failed
}

// tellFailure tells the client of an error.
func tellFailure(request *C.dipc_request, err error) {
	tell(request, statusOf(err), textOf(err))
}

// textOf is the text of an error for the other side.
func textOf(err error) string {
	var failure *Error
	if errors.As(err, &failure) && err == error(failure) { // only the bare error has the prefix
		return failure.Text
	}
	return err.Error()
}

func tell(request *C.dipc_request, status Status, text string) {
	words := cWords(text)
	defer C.free(unsafe.Pointer(words))
	C.dipc_request_fail(request, C.int32_t(status), words, nil)
}

// cWords copies a text for people, to be freed by C.free. The copy is made valid UTF-8 without NULs, because C would
// cut it off there.
func cWords(text string) *C.char {
	return C.CString(strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD"))
}

// sameColumns refuses a batch whose columns differ from the schema that the other side has: it would read their values
// by that schema.
func sameColumns(told, given *arrow.Schema) error {
	if told == given || told.Equal(given) {
		return nil
	}
	schemas := (*[2]C.struct_ArrowSchema)(C.calloc(2, C.sizeof_struct_ArrowSchema))
	defer C.free(unsafe.Pointer(schemas))
	for i, schema := range []*arrow.Schema{told, given} {
		if err := exportSchema(schema, &schemas[i]); err != nil {
			return err
		}
		defer C.dipcgo_schema_release(&schemas[i])
	}
	var failure *C.dipc_error
	status := C.dipc_batch_check_schema(&schemas[0], &schemas[1], &failure)
	return check(status, failure)
}
