package dipc

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"math"
	"sync"
	"time"
	"unsafe"
)

// requestContext is the context of a request: it ends with the stream, at the client's deadline, and when the client
// has gone or has cancelled. It asks the library only when one of its methods is called, and starts a goroutine only
// when somebody waits for Done.
type requestContext struct {
	peer      Peer
	principal string
	headers   Headers
	deadline  time.Time // zero: none
	undecided bool      // it is an authorizer's

	mu      sync.Mutex
	request *C.dipc_request // nil once the stream is over
	done    chan struct{}
	gone    *watched // readable once the client has gone; nil until somebody waits
	err     error
}

func newRequestContext(request *C.dipc_request) *requestContext {
	return &requestContext{request: request, done: make(chan struct{})}
}

// read reads what came with the request. It is called before anyone else has the context.
func (c *requestContext) read() (err error) {
	if left := C.dipc_request_time_left_ns(c.request); left <= math.MaxInt64 {
		c.deadline = time.Now().Add(time.Duration(left))
	}
	c.peer, c.principal = readPeer(c.request), readPrincipal(c.request)
	c.headers, err = readHeaders(func(out **C.dipc_headers, failure **C.dipc_error) C.dipc_status {
		return C.dipc_request_headers(c.request, out, failure)
	})
	return err
}

func readTicket(request *C.dipc_request) (string, C.dipc_status) {
	return readBytes(func(buffer *C.uint8_t, size C.size_t, length *C.size_t) C.dipc_status {
		return C.dipc_request_ticket(request, buffer, size, length, nil)
	})
}

type requestKey struct{}

// requestOf is the request that a context belongs to, or nil.
func requestOf(ctx context.Context) *requestContext {
	request, _ := ctx.Value(requestKey{}).(*requestContext)
	return request
}

// RequestHeaders are the headers that the client sent by [WithHeaders]; they must not be changed. The
// context is that of a [Provider] or a [Request], or made from it; nil for others.
func RequestHeaders(ctx context.Context) Headers {
	if request := requestOf(ctx); request != nil {
		return request.headers
	}
	return nil
}

// AddHeaders adds headers to the answer, for the client's [Reader.Headers]. The context is that of a [Provider] or a
// [Request], or made from it. Headers that are added before the provider returns, or before [Request.Start], go with
// the schema. Later ones go with a failure of the stream. A client whose call fails gets no headers. One answer has at
// most 32 KiB of headers, 5 bytes for each value included.
func AddHeaders(ctx context.Context, headers Headers) error {
	request := requestOf(ctx)
	if request == nil {
		return invalid("headers are added with the context of a provider, and this one is another")
	}
	object, err := headers.build()
	if err != nil {
		return err
	}
	defer C.dipc_headers_free(object)
	request.mu.Lock()
	defer request.mu.Unlock()
	if request.request == nil {
		return invalid("headers are added before the stream is over")
	}
	var failure *C.dipc_error
	return check(C.dipc_request_add_headers(request.request, object, &failure), failure)
}

// SetLabel names the label under which the request is counted ([Server.StatsText]): 1 to 128 bytes. The
// context is that of a [Provider] or a [Request], or made from it. Call it before the provider returns, or
// before [Request.Start]. Otherwise the label is the ticket, or "(handler)" for what a handler serves.
// Choose few: each label has figures of its own.
func SetLabel(ctx context.Context, label string) error {
	request := requestOf(ctx)
	if request == nil {
		return invalid("a label is set with the context of a provider, and this one is another")
	}
	text := C.CString(label)
	defer C.free(unsafe.Pointer(text))
	request.mu.Lock()
	defer request.mu.Unlock()
	if request.request == nil {
		return invalid("a label is set before the stream is over")
	}
	var failure *C.dipc_error
	return check(C.dipc_request_set_label(request.request, text, &failure), failure)
}

// Deadline is when the client wants the stream to be over.
func (c *requestContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// Value gives the requestContext itself, also when it is called on a context that was made from it.
func (c *requestContext) Value(key any) any {
	if key == (requestKey{}) {
		return c
	}
	return nil
}

// Done gives a channel that is closed when the context ends.
func (c *requestContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone == nil && c.err == nil {
		if err := c.watch(); err != nil {
			c.cancel(err)
		}
	}
	return c.done
}

// Err asks whether the context has ended.
func (c *requestContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
	case !c.deadline.IsZero() && !time.Now().Before(c.deadline):
		c.cancel(context.DeadlineExceeded)
	case bool(C.dipc_request_is_cancelled(c.request)):
		c.cancel(context.Canceled)
	}
	return c.err
}

// watch ends the context from now on when the client has gone; c.mu is held.
func (c *requestContext) watch() error {
	var fd C.int32_t
	var failure *C.dipc_error
	err := check(C.dipc_request_cancel_fd(c.request, &fd, &failure), failure)
	if err != nil {
		return err
	}
	gone, err := watch(C.int(fd))
	if err != nil {
		return err
	}
	gone.endAt(c.deadline)
	c.gone = gone
	go func() {
		defer gone.close()
		for c.Err() == nil {
			if err := gone.wait(); err != nil {
				c.fail(err)
			}
		}
	}()
	return nil
}

// fail ends the context with an error, unless it has ended.
func (c *requestContext) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.cancel(err)
	}
}

// cancel ends the context; c.mu is held and c.err is nil.
func (c *requestContext) cancel(reason error) {
	c.err = reason
	close(c.done)
	if c.gone != nil {
		c.gone.endAt(time.Now())
	}
}

// end says that the request is not valid any more.
func (c *requestContext) end() {
	c.mu.Lock()
	c.request = nil
	c.mu.Unlock()
	c.fail(context.Canceled)
}
