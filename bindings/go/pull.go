package dipc

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
)

// ServePull serves ticket, which may be any bytes, in the pull form: [Server.NextRequest] gives its
// requests, and the program answers them in goroutines of its own.
func (s *Server) ServePull(ticket string) error {
	name, length := cBytes(ticket)
	return s.call(func(object *C.dipc_server, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_serve_pull(object, name, length, failure)
	})
}

// SetHandlerPull serves all tickets that have no provider or table of their own in the pull form. It replaces an
// earlier handler, whose streams go on. [Server.SetHandler] replaces it.
func (s *Server) SetHandlerPull() error {
	return s.call(func(object *C.dipc_server, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_set_handler_pull(object, failure)
	})
}

// NextRequest waits for the next request of the pull form. Goroutines that wait, here or in the methods of a [Request],
// occupy no thread of the system. The limits are [WithMaxStreams] and [WithMaxProviders]. Clients wait while nobody
// calls it. So a program that takes no more requests, for example after ctx has ended, calls [Server.Close], which ends
// the clients' waits.
func (s *Server) NextRequest(ctx context.Context) (request *Request, err error) {
	object, err := s.handle.use()
	if err != nil {
		return nil, err
	}
	defer s.handle.done()
	err = s.requests.try(ctx, func(failure **C.dipc_error) C.dipc_status {
		for {
			var asked *C.dipc_request
			status := C.dipc_server_next_request(object, 0, nil, &asked, failure)
			if status != C.DIPC_OK {
				return status
			}
			if request = s.newRequest(asked); request != nil {
				return status
			}
		}
	})
	return request, s.handle.explain(err)
}

// Verb is what a client wants of a ticket.
type Verb int32

// The verbs of requests.
const (
	// VerbGet: the table. [Request.Start], [Request.Push] and [Request.Finish] give it.
	VerbGet Verb = C.DIPC_VERB_GET
	// VerbPut: to send a table under the ticket. [Source.Accept] takes it and [Request.Finish] says that
	// the program has all of it.
	VerbPut Verb = C.DIPC_VERB_PUT
	// VerbExchange: to send a table and to get one at the same time. [Source.Accept] takes the client's table.
	// [Request.Start], [Request.Push] and [Request.Finish] give the other one; its end says that the program has read all
	// of the client's table.
	VerbExchange Verb = C.DIPC_VERB_EXCHANGE
	// VerbDescribe: what the ticket stands for. [Request.Describe] says it.
	VerbDescribe Verb = C.DIPC_VERB_DESCRIBE
	// VerbList: the tickets that begin with this one. [Request.List] gives them.
	VerbList Verb = C.DIPC_VERB_LIST
)

// Request is a client's request in the pull form. Any goroutine may call its methods, also at once. A request that is
// neither finished nor failed must be closed.
type Request struct {
	// Ticket is what the client asks for, any bytes.
	Ticket string
	// Verb is what it wants of it.
	Verb Verb
	// Headers came with the request; they must not be changed.
	Headers Headers
	// Peer is the client.
	Peer Peer
	// Principal is the name that the server's [Authorizer] has given the client; "" if it has given
	// none.
	Principal string
	// Undecided: the program must decide about the request by [Request.Allow] or [Request.Fail] ([WithAuthorizerPull]). A
	// request that is closed undecided is refused.
	Undecided bool
	// Source is the table that the client sends; nil for other verbs than VerbPut
	// and VerbExchange.
	Source *Source

	handle  *handle[*C.dipc_request]
	context *requestContext
	room    *readiness
	loans   *loans

	mu     sync.Mutex
	schema *arrow.Schema // nil before Start
}

// newRequest reads what was asked. If there is no memory for that, the request fails, and the result is nil.
func (s *Server) newRequest(object *C.dipc_request) *Request {
	context := newRequestContext(object)
	room := newReadiness(func(fd *C.int, failure **C.dipc_error) C.dipc_status {
		return C.dipc_request_fd(object, fd, failure)
	})
	r := &Request{Verb: Verb(C.dipc_request_verb(object)), context: context, room: room, loans: s.loans}
	r.handle = newHandle("request", object, func(object *C.dipc_request) {
		context.end()
		room.close()
		C.dipc_request_free(object)
	})
	runtime.AddCleanup(r, func(h *handle[*C.dipc_request]) { h.close(abandon) }, r.handle)
	var status C.dipc_status
	r.Ticket, status = readTicket(object)
	if err := errors.Join(check(status, nil), context.read()); err != nil {
		r.Fail(err)
		return nil
	}
	r.Headers, r.Peer, r.Principal = context.headers, context.peer, context.principal
	r.Undecided = bool(C.dipc_request_is_undecided(object))
	context.undecided = r.Undecided
	if !r.Undecided && (r.Verb == VerbPut || r.Verb == VerbExchange) {
		r.Source = &Source{context: context, handle: r.handle}
	}
	return r
}

// Context ends when the client has gone or has cancelled, at its deadline, and when the request is
// finished, failed or closed. [AddHeaders] takes it.
func (r *Request) Context() context.Context { return r.context }

// Start sends the schema, before the first batch.
func (r *Request) Start(schema *arrow.Schema) error {
	if schema == nil {
		return invalid("the schema is nil")
	}
	described := (*C.struct_ArrowSchema)(C.calloc(1, C.sizeof_struct_ArrowSchema))
	defer C.free(unsafe.Pointer(described))
	defer C.dipcgo_schema_release(described)
	if err := exportSchema(schema, described); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.start(described); err != nil {
		return err
	}
	r.schema = schema
	return nil
}

func (r *Request) start(described *C.struct_ArrowSchema) error {
	return r.send(context.Background(), func(object *C.dipc_request, failure **C.dipc_error) C.dipc_status {
		return C.dipc_request_start(object, described, C.ARROW_DEVICE_CPU, failure)
	})
}

// Push sends a batch, and waits until the client has room for it. The batch is retained until the client
// has given it back. If ctx ends first, nothing was sent and the stream goes on.
func (r *Request) Push(ctx context.Context, batch arrow.RecordBatch) error {
	r.mu.Lock()
	schema := r.schema
	r.mu.Unlock()
	switch {
	case batch == nil:
		return invalid("the batch is nil")
	case schema == nil:
		return invalid("the stream has no schema yet: start it first")
	}
	if err := sameColumns(schema, batch.Schema()); err != nil {
		return err
	}
	array := (*C.struct_ArrowDeviceArray)(C.calloc(1, C.sizeof_struct_ArrowDeviceArray))
	defer C.free(unsafe.Pointer(array))
	if err := exportBatch(batch, array, r.loans.returned); err != nil {
		return err
	}
	r.loans.lent()
	return r.push(ctx, array)
}

// push sends an array and takes it over, even if that fails.
func (r *Request) push(ctx context.Context, array *C.struct_ArrowDeviceArray) error {
	defer C.dipcgo_array_release(&array.array)
	return r.send(ctx, func(object *C.dipc_request, failure **C.dipc_error) C.dipc_status {
		return C.dipc_request_push(object, array, nil, 0, 0, failure)
	})
}

// Finish ends the stream, waits until everything has been sent, and closes the request. If ctx ends
// first it may be called again. For [VerbPut] it tells the client that the program has taken the table.
func (r *Request) Finish(ctx context.Context) error {
	err := r.send(ctx, func(object *C.dipc_request, failure **C.dipc_error) C.dipc_status {
		return C.dipc_request_finish(object, 0, failure)
	})
	if err == nil {
		r.handle.close(nil)
	}
	return err
}

// Describe answers [VerbDescribe], and closes the request.
func (r *Request) Describe(ctx context.Context, description *Description) error {
	if description == nil {
		return invalid("the description is nil")
	}
	answer := (*C.struct_ArrowDeviceArrayStream)(C.calloc(1, C.sizeof_struct_ArrowDeviceArrayStream))
	described := (*C.struct_ArrowSchema)(C.calloc(1, C.sizeof_struct_ArrowSchema))
	array := (*C.struct_ArrowDeviceArray)(C.calloc(1, C.sizeof_struct_ArrowDeviceArray))
	defer C.free(unsafe.Pointer(array))
	defer C.free(unsafe.Pointer(described))
	defer C.dipcgo_schema_release(described)
	defer C.dipcgo_stream_free(answer)
	if err := description.writeTo(answer); err != nil {
		return err
	}
	if !C.dipcgo_answer_schema(answer, described) {
		return &Error{Status: ErrOutOfMemory, Text: "no memory for the answer"}
	}
	if err := r.start(described); err != nil {
		return err
	}
	for C.dipcgo_answer_next(answer, array) {
		if err := r.push(ctx, array); err != nil {
			return err
		}
	}
	return r.Finish(ctx)
}

// List answers [VerbList], and closes the request.
func (r *Request) List(ctx context.Context, endpoints []Endpoint) error {
	return r.Describe(ctx, &Description{Endpoints: endpoints})
}

// Fail ends the stream with an error, which the client gets like an error of a [Provider], and closes the request. A
// call that waits in another goroutine ends.
func (r *Request) Fail(err error) {
	if err == nil {
		err = errors.New("the request failed without a reason")
	}
	r.handle.close(func(object *C.dipc_request) { tellFailure(object, err) })
}

// Close fails the stream, unless it was finished or has failed. It may be called again, and always
// returns nil.
func (r *Request) Close() error {
	r.handle.close(abandon)
	return nil
}

func abandon(object *C.dipc_request) {
	tellFailure(object, errors.New("the request was closed before the stream was finished"))
}

// send makes a call, and makes it again while the client has no room.
func (r *Request) send(
	ctx context.Context, call func(object *C.dipc_request, failure **C.dipc_error) C.dipc_status,
) error {
	object, err := r.handle.use()
	if err != nil {
		return err
	}
	defer r.handle.done()
	r.loans.collect()
	wait, cancel := r.waitContext(ctx)
	defer cancel()
	err = r.room.try(wait, func(failure **C.dipc_error) C.dipc_status {
		status := call(object, failure)
		if status != C.DIPC_ERR_TIMEOUT {
			return status
		}
		C.dipc_error_free(*failure)
		*failure = nil
		return C.DIPC_NOTHING
	})
	if err = r.handle.explain(err); err == nil {
		return nil
	}
	return withContext(ctx, err)
}

// waitContext is the context for a wait. If ctx is the request's own context, a cheaper one does: the descriptor shows
// that the client has gone.
func (r *Request) waitContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx != context.Context(r.context) {
		return ctx, func() {}
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.Background(), func() {}
	}
	return context.WithDeadline(context.Background(), deadline)
}

// collectInterval is how soon batches that clients have given back are released while the program sends
// nothing. The library has no descriptor for them.
const collectInterval = 100 * time.Millisecond

// loans releases the batches of the pull form that clients have given back. The library does not do so, because none of
// its threads calls the program.
type loans struct {
	server *handle[*C.dipc_server]

	mu    sync.Mutex
	out   int         // batches that are not released
	timer *time.Timer // runs while there are some
}

func (l *loans) lent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out++; l.out > 1 {
		return
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(collectInterval, l.collectOften)
	} else {
		l.timer.Reset(collectInterval)
	}
}

func (l *loans) returned() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out--
}

// collect releases what has been given back. It reports whether the server is there.
func (l *loans) collect() bool {
	object, err := l.server.use()
	if err != nil {
		return false // freeing the server released them
	}
	defer l.server.done()
	var released C.size_t
	C.dipc_server_drain_releases(object, &released, nil)
	return true
}

func (l *loans) collectOften() {
	if !l.collect() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out > 0 {
		l.timer.Reset(collectInterval)
	}
}
