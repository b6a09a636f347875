package dipc

// #include "shim.h"
import "C"

import (
	"time"
	"unsafe"
)

// readText gets a text of the library whose length is not known. It asks for the length, then for the text, and again
// if the text has grown meanwhile.
func readText(read func(buffer *C.char, size C.size_t, length *C.size_t) C.dipc_status) (string, C.dipc_status) {
	var length C.size_t
	if status := read(nil, 0, &length); status != C.DIPC_OK {
		return "", status
	}
	for {
		// One byte more for the NUL, which only texts have.
		buffer := make([]byte, length+1)
		status := read((*C.char)(pointer(buffer)), C.size_t(len(buffer)), &length)
		if status == C.DIPC_ERR_BUFFER_TOO_SMALL {
			continue
		}
		if status != C.DIPC_OK {
			return "", status
		}
		return string(buffer[:length]), status
	}
}

// readBytes gets a ticket or another value of the library that is not a text.
func readBytes(read func(buffer *C.uint8_t, size C.size_t, length *C.size_t) C.dipc_status) (string, C.dipc_status) {
	return readText(func(buffer *C.char, size C.size_t, length *C.size_t) C.dipc_status {
		return read((*C.uint8_t)(unsafe.Pointer(buffer)), size, length)
	})
}

// pointer is where the bytes lie.
func pointer(bytes []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(bytes)) }

// nanoseconds is a duration as the library takes it.
func nanoseconds(what string, duration time.Duration) (C.uint64_t, error) {
	if duration < 0 {
		return 0, invalid("the %s is negative: %s", what, duration)
	}
	return C.uint64_t(duration.Nanoseconds()), nil
}

// readStats reads figures by their numbers, until one fails.
func readStats(
	failure **C.dipc_error,
	read func(stat C.int32_t, out *C.uint64_t, failure **C.dipc_error) C.dipc_status,
	wanted map[C.int32_t]*uint64,
) C.dipc_status {
	for stat, target := range wanted {
		var value C.uint64_t
		if status := read(stat, &value, failure); status != C.DIPC_OK {
			return status
		}
		*target = uint64(value)
	}
	return C.DIPC_OK
}
