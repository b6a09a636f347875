package dipc

// #include "shim.h"
import "C"

import (
	"errors"
	"strconv"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
)

// Description says what a ticket stands for, without the table.
type Description struct {
	// Schema is the table's; nil: not known.
	Schema *arrow.Schema
	// Rows, Bytes (of bodies) and Batches are the totals of the table.
	Rows, Bytes, Batches Count
	// Endpoints are the parts of the table, in order. A table in one part has one endpoint, with its own ticket.
	Endpoints []Endpoint
	// Headers came with the answer to [Client.Describe]. A server cannot set them here; it adds headers by [AddHeaders].
	Headers Headers
}

// Endpoint is a part of a table, or one ticket of a [Listing].
type Endpoint struct {
	// Ticket is what to ask for, any bytes.
	Ticket string
	// URIs are servers that have it, the best one first. None: the server that was asked.
	URIs []string
	// Rows and Bytes (of bodies) are the totals of this part.
	Rows, Bytes Count
}

// Count is a number of rows, bytes or batches, which may not be known. The zero value is not known.
type Count struct {
	// successor is the number plus 1. The zero value means not known, because DIPC_UNKNOWN plus 1 is 0.
	successor uint64
}

// Known is the count n.
func Known(n uint64) Count { return Count{n + 1} }

// Value gives the number, and whether it is known; it is 0 where it is not.
func (c Count) Value() (n uint64, known bool) {
	if c.successor == 0 {
		return 0, false
	}
	return c.successor - 1, true
}

// String is the number in digits, or "unknown".
func (c Count) String() string {
	n, known := c.Value()
	if !known {
		return "unknown"
	}
	return strconv.FormatUint(n, 10)
}

// total is the count as the library takes it.
func (c Count) total() C.uint64_t { return C.uint64_t(c.successor - 1) }

// build gives the description as the library takes it, to be freed by dipc_description_free().
func (d *Description) build() (*C.dipc_description, error) {
	var object *C.dipc_description
	var failure *C.dipc_error
	if err := check(C.dipc_description_new(&object, &failure), failure); err != nil {
		return nil, err
	}
	if err := d.fill(object); err != nil {
		C.dipc_description_free(object)
		return nil, err
	}
	return object, nil
}

func (d *Description) fill(object *C.dipc_description) error {
	if d.Schema != nil {
		if err := describeSchema(object, d.Schema); err != nil {
			return err
		}
	}
	for total, count := range map[C.int32_t]Count{
		C.DIPC_TOTAL_ROWS:    d.Rows,
		C.DIPC_TOTAL_BYTES:   d.Bytes,
		C.DIPC_TOTAL_BATCHES: d.Batches,
	} {
		var failure *C.dipc_error
		if err := check(C.dipc_description_set_total(object, total, count.total(), &failure), failure); err != nil {
			return err
		}
	}
	for _, endpoint := range d.Endpoints {
		if err := endpoint.addTo(object); err != nil {
			return err
		}
	}
	return nil
}

func describeSchema(object *C.dipc_description, schema *arrow.Schema) error {
	described := (*C.struct_ArrowSchema)(C.calloc(1, C.sizeof_struct_ArrowSchema))
	defer C.free(unsafe.Pointer(described))
	defer C.dipcgo_schema_release(described)
	if err := exportSchema(schema, described); err != nil {
		return err
	}
	var failure *C.dipc_error
	return check(C.dipc_description_set_schema(object, described, &failure), failure)
}

func (e *Endpoint) addTo(object *C.dipc_description) (err error) {
	uris := make([]*C.char, len(e.URIs))
	defer func() {
		for _, uri := range uris {
			C.free(unsafe.Pointer(uri))
		}
	}()
	for i, uri := range e.URIs {
		if uris[i], err = cString("URI", uri); err != nil {
			return err
		}
	}
	name, length := cBytes(e.Ticket)
	var failure *C.dipc_error
	return check(C.dipc_description_add_endpoint(object, name, length, unsafe.SliceData(uris), C.size_t(len(uris)),
		e.Rows.total(), e.Bytes.total(), &failure), failure)
}

// writeTo fills out with the description as a handler answers it.
func (d *Description) writeTo(out *C.struct_ArrowDeviceArrayStream) error {
	object, err := d.build()
	if err != nil {
		return err
	}
	defer C.dipc_description_free(object)
	var failure *C.dipc_error
	return check(C.dipc_description_to_stream(object, out, &failure), failure)
}

// readDescription reads what a server has answered.
func readDescription(object *C.dipc_description) (d *Description, err error) {
	d = &Description{
		Rows:    Known(uint64(C.dipc_description_total(object, C.DIPC_TOTAL_ROWS))),
		Bytes:   Known(uint64(C.dipc_description_total(object, C.DIPC_TOTAL_BYTES))),
		Batches: Known(uint64(C.dipc_description_total(object, C.DIPC_TOTAL_BATCHES))),
	}
	if d.Schema, err = describedSchema(object); err != nil {
		return nil, err
	}
	d.Headers, err = readHeaders(func(out **C.dipc_headers, failure **C.dipc_error) C.dipc_status {
		return C.dipc_description_headers(object, out, failure)
	})
	if err != nil {
		return nil, err
	}
	for i := range C.dipc_description_endpoint_count(object) {
		endpoint, status := readEndpoint(object, i)
		if err := check(status, nil); err != nil {
			return nil, err
		}
		d.Endpoints = append(d.Endpoints, endpoint)
	}
	return d, nil
}

func describedSchema(object *C.dipc_description) (*arrow.Schema, error) {
	described := (*C.struct_ArrowSchema)(C.calloc(1, C.sizeof_struct_ArrowSchema))
	defer C.free(unsafe.Pointer(described))
	var failure *C.dipc_error
	err := check(C.dipc_description_schema(object, described, &failure), failure)
	if errors.Is(err, ErrNotFound) {
		return nil, nil // not known
	}
	if err != nil {
		return nil, err
	}
	_, schema, err := importSchema(described)
	return schema, err
}

func readEndpoint(object *C.dipc_description, i C.size_t) (endpoint Endpoint, status C.dipc_status) {
	endpoint.Rows = Known(uint64(C.dipc_description_endpoint_total(object, i, C.DIPC_TOTAL_ROWS)))
	endpoint.Bytes = Known(uint64(C.dipc_description_endpoint_total(object, i, C.DIPC_TOTAL_BYTES)))
	endpoint.Ticket, status = readBytes(func(buffer *C.uint8_t, size C.size_t, length *C.size_t) C.dipc_status {
		return C.dipc_description_endpoint_descriptor(object, i, buffer, size, length, nil)
	})
	for j := range C.dipc_description_endpoint_uri_count(object, i) {
		if status != C.DIPC_OK {
			break
		}
		var uri string
		uri, status = readText(func(buffer *C.char, size C.size_t, length *C.size_t) C.dipc_status {
			return C.dipc_description_endpoint_uri(object, i, j, buffer, size, length, nil)
		})
		endpoint.URIs = append(endpoint.URIs, uri)
	}
	return endpoint, status
}
