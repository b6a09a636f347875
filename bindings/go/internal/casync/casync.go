// Package casync calls the functions of libdipc for Arrow's asynchronous device streams, for tests,
// which may not use cgo themselves.
package casync

// #cgo pkg-config: dipc
// #include <stdlib.h>
// #include <dipc.h>
import "C"

import (
	"errors"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/cdata"
)

// Handler is a handler in C's memory, which stays there.
type Handler = *cdata.CArrowAsyncDeviceStreamHandler

// NewHandler gives a place for a handler.
func NewHandler() Handler {
	return Handler(C.calloc(1, C.sizeof_struct_ArrowAsyncDeviceStreamHandler))
}

func raw(handler Handler) *C.struct_ArrowAsyncDeviceStreamHandler {
	return (*C.struct_ArrowAsyncDeviceStreamHandler)(unsafe.Pointer(handler))
}

// IsReleased says whether the handler was released.
func IsReleased(handler Handler) bool { return raw(handler).release == nil }

func check(status C.dipc_status, failure *C.dipc_error) error {
	defer C.dipc_error_free(failure)
	if status == C.DIPC_OK {
		return nil
	}
	return errors.New(C.GoString(C.dipc_error_text(failure)))
}

// Get asks for a table for a handler.
func Get(uri, ticket string, handler Handler) error {
	var failure *C.dipc_error
	var client *C.dipc_client
	if err := check(C.dipc_client_new(nil, &client, &failure), failure); err != nil {
		return err
	}
	// The stream outlives it.
	defer C.dipc_client_free(client)
	address, name := C.CString(uri), C.CString(ticket)
	defer C.free(unsafe.Pointer(address))
	defer C.free(unsafe.Pointer(name))
	status := C.dipc_client_get_async(client, &address, 1, (*C.uint8_t)(unsafe.Pointer(name)),
		C.size_t(len(ticket)), nil, raw(handler), &failure)
	return check(status, failure)
}

// Server serves every ticket in the pull form.
type Server struct {
	object *C.dipc_server
	// URI is where it listens.
	URI string
}

// NewServer listens at an address.
func NewServer(address string) (*Server, error) {
	var failure *C.dipc_error
	server := new(Server)
	var options *C.dipc_server_options
	if err := check(C.dipc_server_options_new(&options, &failure), failure); err != nil {
		return nil, err
	}
	defer C.dipc_server_options_free(options)
	// A ucx address asks for it.
	status := C.dipc_server_options_set_trusted_network(options, true, &failure)
	if err := check(status, failure); err != nil {
		return nil, err
	}
	if err := check(C.dipc_server_new(options, &server.object, &failure), failure); err != nil {
		return nil, err
	}
	at := C.CString(address)
	defer C.free(unsafe.Pointer(at))
	uri := (*C.char)(C.calloc(1, C.DIPC_URI_BYTES))
	defer C.free(unsafe.Pointer(uri))
	var length C.size_t
	status = C.dipc_server_listen(server.object, at, uri, C.DIPC_URI_BYTES, &length, &failure)
	if err := check(status, failure); err != nil {
		return nil, err
	}
	server.URI = C.GoString(uri)
	return server, check(C.dipc_server_set_handler_pull(server.object, &failure), failure)
}

// Answer waits for the next request, and gives the handler for its producer.
func (s *Server) Answer() (Handler, error) {
	const patience = 60_000_000_000
	var failure *C.dipc_error
	var request *C.dipc_request
	status := C.dipc_server_next_request(s.object, patience, nil, &request, &failure)
	if err := check(status, failure); err != nil {
		return nil, err
	}
	handler := NewHandler()
	return handler, check(C.dipc_request_answer_async(request, raw(handler), &failure), failure)
}

// Close ends the server.
func (s *Server) Close() { C.dipc_server_free(s.object) }
