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

// ExchangeOption changes how tables are exchanged: a [CallOption], a [BodyOption] for the client's table, or an
// [AnswerOption] for the server's.
type ExchangeOption interface{ setExchange(*exchangeRequest) error }

// exchangeRequest is a put, and how its answer is read.
type exchangeRequest struct {
	putRequest
	answer getRequest
}

func (r *exchangeRequest) fill(ctx context.Context, uri string, options []ExchangeOption) error {
	if err := r.putRequest.fill(ctx, uri, nil); err != nil {
		return err
	}
	var failure *C.dipc_error
	if err := check(C.dipc_get_options_new(&r.answer.options, &failure), failure); err != nil {
		return err
	}
	for _, option := range options {
		if option == nil {
			continue
		}
		if err := option.setExchange(r); err != nil {
			return err
		}
	}
	return nil
}

func (r *exchangeRequest) free() {
	r.putRequest.free()
	r.answer.free()
}

// Exchange sends a table to the server at uri and gets one from it at the same time, on one connection, with a client
// that the program shares. It returns once the server has accepted, or with the reason why not.
//
// The writer and the reader may be used by two goroutines, and either table may end first.
// [Writer.Finish] waits until the server's program has ended its table too: the reader must be read
// before or meanwhile. An error at either side ends both tables at both sides, and so does a reader that
// is released, or a writer that is closed, before its end.
//
// ctx governs both tables. The writer must be closed and the reader released.
func Exchange(
	ctx context.Context, uri, descriptor string, schema *arrow.Schema, options ...ExchangeOption,
) (*Writer, *Reader, error) {
	client, err := shared()
	if err != nil {
		return nil, nil, err
	}
	return client.Exchange(ctx, uri, descriptor, schema, options...)
}

// Exchange is the package's [Exchange] with this client.
func (c *Client) Exchange(
	ctx context.Context, uri, descriptor string, schema *arrow.Schema, options ...ExchangeOption,
) (*Writer, *Reader, error) {
	if err := mayBegin(ctx); err != nil {
		return nil, nil, err
	}
	if schema == nil {
		return nil, nil, invalid("the schema is nil")
	}
	described := (*C.struct_ArrowSchema)(C.calloc(1, C.sizeof_struct_ArrowSchema))
	defer C.free(unsafe.Pointer(described))
	defer C.dipcgo_schema_release(described)
	if err := exportSchema(schema, described); err != nil {
		return nil, nil, err
	}
	r := &exchangeRequest{}
	defer r.free()
	if err := r.fill(ctx, uri, options); err != nil {
		return nil, nil, err
	}
	answers := &stream{
		object: (*C.struct_ArrowDeviceArrayStream)(C.calloc(1, C.sizeof_struct_ArrowDeviceArrayStream)),
		batch:  (*C.struct_ArrowDeviceArray)(C.calloc(1, C.sizeof_struct_ArrowDeviceArray)),
		spin:   r.answer.spin,
	}
	var object *C.dipc_put
	cancel, err := c.call(ctx, func(client *C.dipc_client, cancel *C.dipc_cancel, out **C.dipc_pending, failure **C.dipc_error) C.dipc_status {
		name, length := cBytes(descriptor)
		return C.dipc_client_start_exchange(client, &r.uri, 1, name, length, r.options, r.answer.options,
			cancel, described, C.ARROW_DEVICE_CPU, out, failure)
	}, func(pending *C.dipc_pending, failure **C.dipc_error) C.dipc_status {
		return C.dipc_pending_try_exchange(pending, &object, answers.object, failure)
	})
	if err != nil {
		answers.close()
		return nil, nil, err
	}
	w := newWriter(ctx, schema, object, cancel)
	if err := answers.watch(); err != nil {
		answers.close()
		w.Close()
		return nil, nil, err
	}
	// The writer's token would end both tables. This one ends only the reader's waits.
	ended, ready := new(atomic.Bool), answers.ready
	blocked := new(atomic.Bool)
	answers.blocked = blocked
	answers.ended = ended
	answers.cancel = newWakingToken(ctx, func() {
		ended.Store(true)
		if blocked.Load() {
			cancel.trigger()
		}
		ready.endAt(time.Now())
	})
	return w, makeReader(ctx, answers), nil
}
