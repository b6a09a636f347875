package dipc

// #cgo pkg-config: dipc
// #cgo LDFLAGS: -ldl
// #include "shim.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// What the package was compiled with, as dipc_version() counts.
const headerVersion = C.DIPC_VERSION_MAJOR*1_000_000 + C.DIPC_VERSION_MINOR*1_000 + C.DIPC_VERSION_PATCH

// libraryError says why the library that was loaded cannot be used; nil if it can. Everything
// that makes a handle returns it, so that a program can report it in its own way.
var libraryError error

func init() {
	libraryError = checkVersion(headerVersion, uint32(C.dipc_version()), C.GoString(C.dipc_version_string()))
}

// checkVersion compares the header's version with the loaded library's. Before 1.0 each minor
// version may break the ABI, so it counts as a major one.
func checkVersion(header, loaded uint32, loadedText string) error {
	headerMajor, headerMinor := header/1_000_000, header/1_000%1_000
	major, minor := loaded/1_000_000, loaded/1_000%1_000
	if major == headerMajor && (major > 0 || minor == headerMinor) {
		return nil
	}
	return &Error{
		Status: ErrUnsupported,
		Text: fmt.Sprintf("the program was built for libdipc %d.%d and loaded libdipc %s from %s: "+
			"install libdipc %d.%d, or build the program again", headerMajor, headerMinor, loadedText,
			libraryPath(), headerMajor, headerMinor),
	}
}

// libraryPath is the file that the library was loaded from, as far as the system tells.
func libraryPath() string {
	path := C.dipcgo_library_path()
	if path == nil {
		return "a place that the system does not name"
	}
	return C.GoString(path)
}

// Version is the version of the library that was loaded, as "0.1.0".
func Version() string {
	return C.GoString(C.dipc_version_string())
}

// TransportAvailable returns nil if URIs of scheme ("shm") work on this machine, and otherwise an
// error, [ErrUnsupported], that says what is missing and how to get it.
func TransportAvailable(scheme string) error {
	if libraryError != nil {
		return libraryError
	}
	text, err := cString("scheme", scheme)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(text))
	var failure *C.dipc_error
	return check(C.dipc_transport_available(text, &failure), failure)
}
