package dipc

// #include "shim.h"
import "C"

import (
	"context"
	"time"
	"unsafe"
)

// PutOption changes how one table is sent: a [CallOption] or a [BodyOption].
type PutOption interface{ setPut(*putRequest) error }

type putOption func(*putRequest) error

// putRequest is what a client asks a server to take, as C takes it.
type putRequest struct {
	uri     *C.char
	options *C.dipc_put_options
}

func (r *putRequest) fill(ctx context.Context, uri string, options []PutOption) (err error) {
	if r.uri, err = cString("URI", uri); err != nil {
		return err
	}
	var failure *C.dipc_error
	if err := check(C.dipc_put_options_new(&r.options, &failure), failure); err != nil {
		return err
	}
	for _, option := range options {
		if option == nil {
			continue
		}
		if err := option.setPut(r); err != nil {
			return err
		}
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	failure = nil
	left := C.uint64_t(max(time.Until(deadline), 0))
	return check(C.dipc_put_options_set_deadline_ns(r.options, left, &failure), failure)
}

func (r *putRequest) free() {
	C.free(unsafe.Pointer(r.uri))
	C.dipc_put_options_free(r.options)
}
