// Package cstream reads C device streams as a library of C would, for tests, which may not use cgo
// themselves.
package cstream

// #cgo pkg-config: dipc
// #include <stdint.h>
// #include <stdlib.h>
// #include <string.h>
// #include <dipc.h>
//
// // Reads to the end; -1 if a callback fails.
// static int64_t rows(struct ArrowDeviceArrayStream *stream) {
//   int64_t count = 0;
//   for (;;) {
//     struct ArrowDeviceArray array;
//     memset(&array, 0, sizeof array);
//     if (stream->get_next(stream, &array) != 0) return -1;
//     if (array.array.release == NULL) return count;
//     count += array.array.length;
//     array.array.release(&array.array);
//   }
// }
//
// static void release(struct ArrowDeviceArrayStream *stream) {
//   if (stream->release) stream->release(stream);
//   free(stream);
// }
import "C"

import "unsafe"

// Stream is a C device stream in C's memory.
type Stream struct {
	object *C.struct_ArrowDeviceArrayStream
}

// New gives a place for a stream.
func New() Stream {
	return Stream{(*C.struct_ArrowDeviceArrayStream)(C.calloc(1, C.sizeof_struct_ArrowDeviceArrayStream))}
}

// Pointer is the place.
func (s Stream) Pointer() unsafe.Pointer { return unsafe.Pointer(s.object) }

// IsEmpty says whether there is no stream in it.
func (s Stream) IsEmpty() bool { return s.object.release == nil }

// DeviceType is where its arrays lie.
func (s Stream) DeviceType() int { return int(s.object.device_type) }

// Rows reads it to its end; -1 if it fails.
func (s Stream) Rows() int64 { return int64(C.rows(s.object)) }

// Free releases the stream, and the place.
func (s Stream) Free() { C.release(s.object) }
