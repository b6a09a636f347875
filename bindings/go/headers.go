package dipc

// #include "shim.h"
import "C"

import (
	"maps"
	"slices"
	"unsafe"
)

// Headers go with a request to the server's program, and back with its answer: credentials, trace
// ids, parameters of a query. A key has 1 to 255 of the characters a to z, 0 to 9, '-', '_' and '.',
// and does not begin with "dipc-". A value is any bytes. The values of a key keep their order; keys
// have none.
type Headers map[string][]string

// Add adds a value to those of the key.
func (h Headers) Add(key, value string) { h[key] = append(h[key], value) }

// Get gives the first value of the key; "" if there is none.
func (h Headers) Get(key string) string {
	if values := h[key]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// build gives the headers as the library takes them, to be freed by dipc_headers_free().
func (h Headers) build() (*C.dipc_headers, error) {
	var object *C.dipc_headers
	var failure *C.dipc_error
	if err := check(C.dipc_headers_new(&object, &failure), failure); err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(h)) {
		if err := addHeader(object, key, h[key]); err != nil {
			C.dipc_headers_free(object)
			return nil, err
		}
	}
	return object, nil
}

func addHeader(object *C.dipc_headers, key string, values []string) error {
	name, err := cString("key of a header", key)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(name))
	for _, value := range values {
		first, length := cBytes(value)
		var failure *C.dipc_error
		if err := check(C.dipc_headers_add(object, name, first, length, &failure), failure); err != nil {
			return err
		}
	}
	return nil
}

// readHeaders reads the headers that get gives; nil if there are none.
func readHeaders(get func(out **C.dipc_headers, failure **C.dipc_error) C.dipc_status) (Headers, error) {
	var object *C.dipc_headers
	var failure *C.dipc_error
	status := get(&object, &failure)
	if err := check(status, failure); err != nil {
		return nil, err
	}
	defer C.dipc_headers_free(object)
	count := C.dipc_headers_count(object)
	if count == 0 {
		return nil, nil
	}
	headers := make(Headers, count)
	for i := range count {
		key, status := readText(func(buffer *C.char, size C.size_t, length *C.size_t) C.dipc_status {
			return C.dipc_headers_key(object, i, buffer, size, length, nil)
		})
		if err := check(status, nil); err != nil {
			return nil, err
		}
		value, status := readBytes(func(buffer *C.uint8_t, size C.size_t, length *C.size_t) C.dipc_status {
			return C.dipc_headers_value(object, i, buffer, size, length, nil)
		})
		if err := check(status, nil); err != nil {
			return nil, err
		}
		headers.Add(key, value)
	}
	return headers, nil
}
