package dipc

// #include "shim.h"
import "C"

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"
)

// Client fetches tables from servers and sends tables to them, and keeps connections for the next one. Its methods may be
// called by any goroutine, also at once.
type Client struct {
	handle *handle[*C.dipc_client]
}

// NewClient makes a client. Most programs do not need one and call [Get], which uses a shared client.
func NewClient(options ...ClientOption) (*Client, error) {
	if libraryError != nil {
		return nil, libraryError
	}
	var failure *C.dipc_error
	var set *C.dipc_client_options
	if err := check(C.dipc_client_options_new(&set, &failure), failure); err != nil {
		return nil, err
	}
	defer C.dipc_client_options_free(set)
	for _, option := range options {
		if option.set == nil {
			continue
		}
		if err := option.set(set); err != nil {
			return nil, err
		}
	}
	var object *C.dipc_client
	failure = nil
	if err := check(C.dipc_client_new(set, &object, &failure), failure); err != nil {
		return nil, err
	}
	c := &Client{handle: newHandle("client", object, func(object *C.dipc_client) { C.dipc_client_free(object) })}
	runtime.AddCleanup(c, func(h *handle[*C.dipc_client]) { h.close(nil) }, c.handle)
	return c, nil
}

// shared is the client of the package's own Get.
var shared = sync.OnceValues(func() (*Client, error) { return NewClient() })

// Get asks the server at uri for ticket, which may be any bytes, with a client that the program
// shares. It returns once the schema is there, or with the reason why there is none.
//
// ctx governs the whole stream, not only this call, and the server's program sees its deadline. The reader must be
// released.
func Get(ctx context.Context, uri, ticket string, options ...GetOption) (*Reader, error) {
	client, err := shared()
	if err != nil {
		return nil, err
	}
	return client.Get(ctx, uri, ticket, options...)
}

// Get is the package's [Get] with this client.
func (c *Client) Get(ctx context.Context, uri, ticket string, options ...GetOption) (*Reader, error) {
	return c.read(ctx, uri, options, C.DIPC_VERB_GET, ticket)
}

// GetStream asks as [Client.Get] does, and writes what comes to out, which points to a C struct
// ArrowDeviceArrayStream in C's memory (what it held before is not released). It is for libraries of C
// that read arrays wherever they lie: with [WithDevice] on a GPU.
//
// ctx governs this call alone: the stream ends when its release is called, or at the deadline of
// [WithDeadline].
func (c *Client) GetStream(ctx context.Context, uri, ticket string, out unsafe.Pointer, options ...GetOption) error {
	if out == nil {
		return invalid("there is no place for the stream: out is nil")
	}
	s, err := c.open(ctx, uri, options, C.DIPC_VERB_GET, ticket)
	if err != nil {
		return err
	}
	*(*C.struct_ArrowDeviceArrayStream)(out) = *s.object
	s.object.release = nil // moved
	s.close()
	return nil
}

// read opens a stream that ctx governs to its end.
func (c *Client) read(
	ctx context.Context, uri string, options []GetOption, verb C.int32_t, descriptor string,
) (*Reader, error) {
	s, err := c.open(ctx, uri, byContext(options), verb, descriptor)
	if err != nil {
		return nil, err
	}
	r, err := newReader(ctx, s)
	if err != nil {
		s.close()
		return nil, withContext(ctx, err)
	}
	return r, nil
}

// open opens a stream. ctx may end it until it is closed.
func (c *Client) open(
	ctx context.Context, uri string, options []GetOption, verb C.int32_t, descriptor string,
) (*stream, error) {
	s := &stream{
		object: (*C.struct_ArrowDeviceArrayStream)(C.calloc(1, C.sizeof_struct_ArrowDeviceArrayStream)),
		batch:  (*C.struct_ArrowDeviceArray)(C.calloc(1, C.sizeof_struct_ArrowDeviceArray)),
	}
	r := &getRequest{ctx: ctx}
	cancel, err := c.ask(r, uri, options, verb, descriptor, func(pending *C.dipc_pending, failure **C.dipc_error) C.dipc_status {
		return C.dipc_pending_try_stream(pending, s.object, failure)
	})
	if err != nil {
		s.close()
		return nil, err
	}
	s.cancel, s.spin = cancel, r.spin
	return s, nil
}

// ask asks the server at uri. Until the token is freed, the context of r ends the request, and the stream that it
// opened.
func (c *Client) ask(
	r *getRequest, uri string, options []GetOption, verb C.int32_t, descriptor string, take taking,
) (*token, error) {
	if err := mayBegin(r.ctx); err != nil {
		return nil, err
	}
	defer r.free()
	if err := r.fill(uri, options); err != nil {
		return nil, err
	}
	return c.call(r.ctx, func(client *C.dipc_client, cancel *C.dipc_cancel, out **C.dipc_pending, failure **C.dipc_error) C.dipc_status {
		name, length := cBytes(descriptor)
		return C.dipc_client_start(client, verb, &r.uris[0], r.countURIs(), name, length, r.options, cancel,
			out, failure)
	}, take)
}

func mayBegin(ctx context.Context) error {
	if ctx == nil {
		return invalid("the context is nil: pass context.Background()")
	}
	if ctx.Err() != nil {
		return contextEnded(ctx, "the call before it began")
	}
	return nil
}

// starting is a call of the library's that begins a request.
type starting func(
	client *C.dipc_client, cancel *C.dipc_cancel, out **C.dipc_pending, failure **C.dipc_error,
) C.dipc_status

// taking is a call of the library that gives the answer to a request, if the answer has come.
type taking func(pending *C.dipc_pending, failure **C.dipc_error) C.dipc_status

// call makes a request with a token that ctx triggers, waits for the answer without a thread of the
// system, and gives the token.
func (c *Client) call(ctx context.Context, start starting, take taking) (*token, error) {
	cancel, err := newToken(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.request(cancel, start, take); err != nil {
		cancel.free()
		return nil, withContext(ctx, err)
	}
	return cancel, nil
}

func (c *Client) request(cancel *token, start starting, take taking) error {
	object, err := c.handle.use()
	if err != nil {
		return err
	}
	var failure *C.dipc_error
	var pending *C.dipc_pending
	status := start(object, cancel.object, &pending, &failure)
	c.handle.done()
	if err := check(status, failure); err != nil {
		return err
	}
	defer C.dipc_pending_free(pending)
	var fd C.int
	if err := check(C.dipc_pending_fd(pending, &fd, &failure), failure); err != nil {
		return err
	}
	answered, err := watch(fd)
	if err != nil {
		return err
	}
	defer answered.close()
	for {
		status := take(pending, &failure)
		if err := check(status, failure); err != nil || status != C.DIPC_NOTHING {
			return err
		}
		// A token that is triggered makes the descriptor readable, too.
		if err := answered.wait(); err != nil {
			return err
		}
	}
}

// Close closes the client. Its readers go on. It may be called again, and always returns nil.
func (c *Client) Close() error {
	c.handle.close(nil)
	return nil
}

// ClientStats are the figures of a client.
type ClientStats struct {
	Streams         uint64 // asked for since the start
	ConnectionsMade uint64 // since the start
	ConnectionsIdle uint64 // kept for the next stream
}

// Stats gives the client's figures so far.
func (c *Client) Stats() (ClientStats, error) {
	var stats ClientStats
	object, err := c.handle.use()
	if err != nil {
		return stats, err
	}
	defer c.handle.done()
	var failure *C.dipc_error
	status := readStats(&failure, func(stat C.int32_t, out *C.uint64_t, failure **C.dipc_error) C.dipc_status {
		return C.dipc_client_stat(object, stat, out, failure)
	}, map[C.int32_t]*uint64{
		C.DIPC_CLIENT_STAT_STREAMS:          &stats.Streams,
		C.DIPC_CLIENT_STAT_CONNECTIONS_MADE: &stats.ConnectionsMade,
		C.DIPC_CLIENT_STAT_CONNECTIONS_IDLE: &stats.ConnectionsIdle,
	})
	return stats, check(status, failure)
}

// getRequest is what a client asks for, as C takes it.
type getRequest struct {
	ctx      context.Context
	deadline time.Time // zero: none
	spin     time.Duration

	uris    [2]*C.char // metadata and bodies; the second one may be nil
	options *C.dipc_get_options
}

func (r *getRequest) fill(uri string, options []GetOption) (err error) {
	if r.uris[0], err = cString("URI", uri); err != nil {
		return err
	}
	var failure *C.dipc_error
	if err := check(C.dipc_get_options_new(&r.options, &failure), failure); err != nil {
		return err
	}
	for _, option := range options {
		if option == nil {
			continue
		}
		if err := option.setGet(r); err != nil {
			return err
		}
	}
	return nil
}

func (r *getRequest) countURIs() C.size_t {
	if r.uris[1] == nil {
		return 1
	}
	return 2
}

// endAt sets the deadline, unless there is an earlier one.
func (r *getRequest) endAt(deadline time.Time) error {
	if !r.deadline.IsZero() && r.deadline.Before(deadline) {
		return nil
	}
	r.deadline = deadline
	var failure *C.dipc_error
	left := C.uint64_t(max(time.Until(deadline), 0))
	return check(C.dipc_get_options_set_deadline_ns(r.options, left, &failure), failure)
}

// byContext is the options with the deadline of the request's context.
func byContext(options []GetOption) []GetOption {
	return append(slices.Clip(options), getOption(func(r *getRequest) error {
		deadline, ok := r.ctx.Deadline()
		if !ok {
			return nil
		}
		return r.endAt(deadline)
	}))
}

func (r *getRequest) free() {
	for _, uri := range r.uris {
		C.free(unsafe.Pointer(uri))
	}
	C.dipc_get_options_free(r.options)
}
