package dipc

// #include "shim.h"
import "C"

import (
	"context"
	"runtime"
	"sync"
	"unsafe"
)

// Client fetches tables from servers, and keeps connections for the next one. Its methods may be
// called by any goroutine, also at once.
type Client struct {
	handle *handle[*C.dipc_client]
}

// NewClient makes a client of its own; most programs need none and call [Get].
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
// ctx governs the whole stream, not only this call. The reader must be released.
func Get(ctx context.Context, uri, ticket string, options ...GetOption) (*Reader, error) {
	client, err := shared()
	if err != nil {
		return nil, err
	}
	return client.Get(ctx, uri, ticket, options...)
}

// Get is the package's [Get] with this client.
func (c *Client) Get(ctx context.Context, uri, ticket string, options ...GetOption) (*Reader, error) {
	s, err := c.ask(ctx, uri, ticket, options)
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

// GetStream asks as [Client.Get] does, and writes what comes to out, which points to a C struct
// ArrowDeviceArrayStream in C's memory (what it held before is not released). It is for libraries of C
// that read arrays wherever they lie: with [WithDevice] on a GPU.
//
// ctx governs this call alone: the stream ends when its release is called.
func (c *Client) GetStream(ctx context.Context, uri, ticket string, out unsafe.Pointer, options ...GetOption) error {
	if out == nil {
		return invalid("there is no place for the stream: out is nil")
	}
	s, err := c.ask(ctx, uri, ticket, options)
	if err != nil {
		return err
	}
	*(*C.struct_ArrowDeviceArrayStream)(out) = *s.object
	s.object.release = nil // moved
	s.close()
	return nil
}

// ask asks for a stream. ctx may end it until it is closed.
func (c *Client) ask(ctx context.Context, uri, ticket string, options []GetOption) (*stream, error) {
	if ctx == nil {
		return nil, invalid("the context is nil: pass context.Background()")
	}
	if ctx.Err() != nil {
		return nil, contextEnded(ctx, "the call before it began")
	}
	asked := &getRequest{}
	defer asked.free()
	if err := asked.fill(uri, options); err != nil {
		return nil, err
	}
	object, err := c.handle.use()
	if err != nil {
		return nil, err
	}
	defer c.handle.done()
	cancel, err := newToken()
	if err != nil {
		return nil, err
	}
	s := &stream{
		object: (*C.struct_ArrowDeviceArrayStream)(C.calloc(1, C.sizeof_struct_ArrowDeviceArrayStream)),
		batch:  (*C.struct_ArrowDeviceArray)(C.calloc(1, C.sizeof_struct_ArrowDeviceArray)),
		cancel: cancel,
		unhook: context.AfterFunc(ctx, cancel.trigger),
	}
	name, length := ticketBytes(ticket)
	var failure *C.dipc_error
	err = check(C.dipcgo_client_get(object, asked.uri, asked.dataURI, name, length, asked.options,
		cancel.object, s.object, &failure), failure)
	if err != nil {
		s.close()
		return nil, withContext(ctx, err)
	}
	return s, nil
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

// getRequest is what a Get asks for, as C takes it.
type getRequest struct {
	uri, dataURI *C.char
	options      *C.dipc_get_options
}

func (r *getRequest) fill(uri string, options []GetOption) (err error) {
	if r.uri, err = cString("URI", uri); err != nil {
		return err
	}
	var failure *C.dipc_error
	if err := check(C.dipc_get_options_new(&r.options, &failure), failure); err != nil {
		return err
	}
	for _, option := range options {
		if option.set == nil {
			continue
		}
		if err := option.set(r); err != nil {
			return err
		}
	}
	return nil
}

func (r *getRequest) free() {
	C.free(unsafe.Pointer(r.uri))
	C.free(unsafe.Pointer(r.dataURI))
	C.dipc_get_options_free(r.options)
}
