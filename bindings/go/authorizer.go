package dipc

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime/cgo"
	"unsafe"
)

// Authorizer decides whether a client may do what its request says, before anything is done for it. nil allows, also
// with [SetPrincipal]. An error refuses: the client gets the error's text and its status ([ErrNotFound] and the like),
// or [ErrPermission] if the error has no status. A panic refuses too.
//
// ctx belongs to the request, as that of a [Provider] does: [RequestPeer] and [RequestHeaders] say who asks. For a list
// or a description the authorizer is also called with [VerbGet] for each ticket that the answer would show. It runs on
// a thread of the library's, so it may block; several run at the same time.
type Authorizer func(ctx context.Context, verb Verb, ticket string) error

// WithAuthorizer lets a function of the program decide about each request. Default: every client that can connect may
// do everything.
func WithAuthorizer(authorizer Authorizer) ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		if authorizer == nil {
			return invalid("the authorizer is nil")
		}
		kept := cgo.NewHandle(authorizer)
		var failure *C.dipc_error
		err := check(C.dipcgo_server_options_set_authorizer(o, C.uintptr_t(kept), &failure), failure)
		if err != nil {
			kept.Delete()
		}
		return err
	})
}

// WithAuthorizerPull makes [Server.NextRequest] give each request first for a decision of the program:
// [Request.Undecided] is true then, and [Request.Allow] or [Request.Fail] is the answer. The program must then take
// requests, even if no ticket is served in the pull form. If [WithAuthorizer] is set too, it decides, and this option
// has no effect.
func WithAuthorizerPull() ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		var failure *C.dipc_error
		return check(C.dipc_server_options_set_authorizer_pull(o, true, &failure), failure)
	})
}

// Allow says that the client of an undecided request may do what it asks for, and closes the request.
// If the pull form serves it, [Server.NextRequest] gives it once more.
func (r *Request) Allow() error {
	object, err := r.handle.use()
	if err != nil {
		return err
	}
	var failure *C.dipc_error
	err = check(C.dipc_request_allow(object, &failure), failure)
	r.handle.done()
	if err == nil {
		r.handle.close(nil)
	}
	return err
}

// SetPrincipal names the client, for [RequestPrincipal] of the handlers. The context is that of an
// [Authorizer] or of an undecided [Request], or made from it.
func SetPrincipal(ctx context.Context, principal string) error {
	request := requestOf(ctx)
	if request == nil || !request.undecided {
		return invalid("the client is named with the context of an authorizer, and this one is another")
	}
	name, err := cString("principal", principal)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(name))
	request.mu.Lock()
	defer request.mu.Unlock()
	if request.request == nil {
		return invalid("the client is named before the authorizer returns")
	}
	var failure *C.dipc_error
	return check(C.dipc_request_set_principal(request.request, name, &failure), failure)
}

// RequestPrincipal is the name that the server's [Authorizer] has given the client; "" if it has given
// none. The context is that of a [Provider] or a [Request], or made from it.
func RequestPrincipal(ctx context.Context) string {
	if request := requestOf(ctx); request != nil {
		return request.principal
	}
	return ""
}

func readPrincipal(request *C.dipc_request) string {
	principal, _ := readText(func(buffer *C.char, size C.size_t, length *C.size_t) C.dipc_status {
		return C.dipc_request_principal(request, buffer, size, length, nil)
	})
	return principal
}

//export dipcgoAuthorize
func dipcgoAuthorize(handle C.uintptr_t, request *C.dipc_request) (code C.int32_t) {
	asked := newRequestContext(request)
	asked.undecided = true
	defer asked.end()
	defer func() {
		if reason := recover(); reason != nil {
			err, _ := reason.(error)
			tell(request, statusOr(err, ErrPermission), fmt.Sprintf("the authorizer panicked: %v", reason))
			code = failed
		}
	}()
	ticket, status := readTicket(request)
	err := errors.Join(check(status, nil), asked.read())
	if err == nil {
		decide := cgo.Handle(handle).Value().(Authorizer)
		err = decide(asked, Verb(C.dipc_request_verb(request)), ticket)
	}
	if err != nil {
		tell(request, statusOr(err, ErrPermission), textOf(err))
		return failed
	}
	return 0
}
