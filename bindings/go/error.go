package dipc

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// Status says for programs what a failure was. It is an error of its own: errors.Is(err,
// dipc.ErrNotFound) asks for it.
type Status int32

// The failures that libdipc knows. A number never changes its meaning.
const (
	// ErrInvalidArgument: an argument is outside what the function takes; nothing changed.
	ErrInvalidArgument Status = C.DIPC_ERR_INVALID_ARGUMENT
	// ErrInvalidURI: a URI cannot be read, or lacks a part that it must have.
	ErrInvalidURI Status = C.DIPC_ERR_INVALID_URI
	// ErrUnsupported: this build, machine or peer cannot do what was asked.
	ErrUnsupported Status = C.DIPC_ERR_UNSUPPORTED
	// ErrNotFound: the server has no such ticket.
	ErrNotFound Status = C.DIPC_ERR_NOT_FOUND
	// ErrAlreadyExists: the ticket is served already.
	ErrAlreadyExists Status = C.DIPC_ERR_ALREADY_EXISTS
	// ErrAddressInUse: another live server listens at the address.
	ErrAddressInUse Status = C.DIPC_ERR_ADDRESS_IN_USE
	// ErrUnreachable: nobody listens at the address, or it cannot be reached.
	ErrUnreachable Status = C.DIPC_ERR_UNREACHABLE
	// ErrPermission: the peer, or the operating system, does not admit this user.
	ErrPermission Status = C.DIPC_ERR_PERMISSION
	// ErrProtocol: the peer broke a rule of the protocol.
	ErrProtocol Status = C.DIPC_ERR_PROTOCOL
	// ErrDisconnected: the peer went away: its process ended or the connection was cut.
	ErrDisconnected Status = C.DIPC_ERR_DISCONNECTED
	// ErrCancelled: the stream was cancelled, by this side or the other.
	ErrCancelled Status = C.DIPC_ERR_CANCELLED
	// ErrTimeout: connecting, waiting for the peer, or the whole stream took longer than the option or
	// the context allows.
	ErrTimeout Status = C.DIPC_ERR_TIMEOUT
	// ErrBusy: the server serves as many streams as its options allow; try again after
	// [Error.RetryAfter].
	ErrBusy Status = C.DIPC_ERR_BUSY
	// ErrOutOfMemory: memory for bodies or regions ran out, or an option's limit on it was reached.
	ErrOutOfMemory Status = C.DIPC_ERR_OUT_OF_MEMORY
	// ErrOutOfResources: file descriptors, threads or another resource of the process ran out.
	ErrOutOfResources Status = C.DIPC_ERR_OUT_OF_RESOURCES
	// ErrIO: the operating system reported an error that has no status of its own.
	ErrIO Status = C.DIPC_ERR_IO
	// ErrInvalidData: an Arrow array or schema, the caller's or the peer's, is not valid.
	ErrInvalidData Status = C.DIPC_ERR_INVALID_DATA
	// ErrProvider: the provider of the ticket failed; the text is the provider's.
	ErrProvider Status = C.DIPC_ERR_PROVIDER
	// ErrStopped: the server or client was stopped, or the handle is closed.
	ErrStopped Status = C.DIPC_ERR_STOPPED
	// ErrPanic: a bug in libdipc: the call panicked and the handle can only be closed.
	ErrPanic Status = C.DIPC_ERR_PANIC
	// ErrPoisoned: an earlier call on the handle panicked; it can only be closed.
	ErrPoisoned Status = C.DIPC_ERR_POISONED
)

// ErrClosed says that a method was called on a server, client, reader or arena after its Close or
// Release. The [*Error] around it has the status [ErrStopped].
var ErrClosed = errors.New("dipc: used after it was closed")

// Name is the name of the status in dipc.h, as "DIPC_ERR_NOT_FOUND"; "DIPC_UNKNOWN" for a number
// that is no status.
func (s Status) Name() string {
	return C.GoString(C.dipc_status_name(C.dipc_status(s)))
}

// Error is the status in words, as "dipc: not found".
func (s Status) Error() string {
	name := strings.TrimPrefix(strings.TrimPrefix(s.Name(), "DIPC_"), "ERR_")
	return "dipc: " + strings.ReplaceAll(strings.ToLower(name), "_", " ")
}

// Error is why a call failed. Every error of this package is one, or wraps one.
type Error struct {
	// Status is for programs; errors.Is finds it.
	Status Status
	// Text is for people: the cause and, if there is one, the remedy.
	Text string
	// Errno is the errno of the system call that caused the failure; 0 if no system call failed.
	Errno syscall.Errno
	// RetryAfter is the time to wait before a busy server is asked again; wait longer each time. 0 if the server has not
	// said. A call with a deadline asks again by itself.
	RetryAfter time.Duration

	causes []error
}

// Error is the text.
func (e *Error) Error() string {
	return "dipc: " + e.Text
}

// Unwrap gives the status, the errno and what else caused the failure, for [errors.Is] and
// [errors.As].
func (e *Error) Unwrap() []error {
	all := append([]error{e.Status}, e.causes...)
	if e.Errno != 0 {
		all = append(all, e.Errno)
	}
	return all
}

// check turns what a call returned into an error, and frees the details.
func check(status C.dipc_status, failure *C.dipc_error) error {
	if status >= C.DIPC_OK {
		return nil
	}
	if failure == nil {
		return &Error{Status: Status(status), Text: strings.TrimPrefix(Status(status).Error(), "dipc: ")}
	}
	defer C.dipc_error_free(failure)
	return &Error{
		Status:     Status(status),
		Text:       C.GoString(C.dipc_error_text(failure)),
		Errno:      syscall.Errno(C.dipc_error_os_errno(failure)),
		RetryAfter: time.Duration(min(C.dipc_error_retry_after_ns(failure), math.MaxInt64)),
	}
}

// invalid is the error for an argument that the package itself refuses.
func invalid(format string, args ...any) error {
	return &Error{Status: ErrInvalidArgument, Text: fmt.Sprintf(format, args...)}
}

// closed is the error of a method that was called on a closed object; what names the object.
func closed(what string) error {
	return &Error{
		Status: ErrStopped,
		Text:   fmt.Sprintf("the %s is closed: make another one", what),
		causes: []error{ErrClosed},
	}
}

// withContext adds the context's error to err if the context has ended the call, so that
// errors.Is(err, context.Canceled) and the like hold.
func withContext(ctx context.Context, err error) error {
	var failure *Error
	if !errors.As(err, &failure) {
		return err
	}
	switch failure.Status {
	case ErrCancelled:
	case ErrTimeout:
		// Both sides know the context's deadline, and may reach it before the context has ended.
		deadline, ok := ctx.Deadline()
		if !ok || time.Now().Before(deadline) {
			return err // another limit
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	default:
		return err
	}
	if ctx.Err() == nil {
		return err
	}
	return contextEnded(ctx, "the stream")
}

// contextEnded is the error of a call that its context has ended. A deadline that passed is both ErrTimeout and
// ErrCancelled; every other end is ErrCancelled.
func contextEnded(ctx context.Context, what string) error {
	cause := context.Cause(ctx)
	text := "the context ended " + what + ": " + ctx.Err().Error()
	status, causes := ErrCancelled, []error{ctx.Err()}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		status, causes = ErrTimeout, append(causes, ErrCancelled)
	}
	if cause != nil && cause != ctx.Err() { // the very same error need not be said twice
		text += ": " + cause.Error()
		causes = append(causes, cause)
	}
	return &Error{Status: status, Text: text, causes: causes}
}

// statusOf is what a client is told about a provider's error: the status it carries, or
// DIPC_ERR_PROVIDER.
func statusOf(err error) Status { return statusOr(err, ErrProvider) }

// statusOr is the status that an error carries, or another one.
func statusOr(err error, other Status) Status {
	var failure *Error
	var status Status
	switch {
	case errors.As(err, &failure):
		return failure.Status
	case errors.As(err, &status):
		return status
	case errors.Is(err, context.Canceled):
		return ErrCancelled
	case errors.Is(err, context.DeadlineExceeded):
		return ErrTimeout
	default:
		return other
	}
}

// cString copies text for C, to be freed by C.free. A NUL inside would cut it off unseen.
func cString(what, text string) (*C.char, error) {
	if strings.IndexByte(text, 0) >= 0 {
		return nil, invalid("the %s %q has a NUL inside", what, text)
	}
	return C.CString(text), nil
}

// noBytes is what the pointer of a ticket without bytes points to, since NULL is refused.
var noBytes byte

// cBytes is where the bytes of a ticket or of a header lie; C reads them during the call only.
func cBytes(text string) (*C.uint8_t, C.size_t) {
	if len(text) == 0 {
		return (*C.uint8_t)(&noBytes), 0
	}
	return (*C.uint8_t)(unsafe.Pointer(unsafe.StringData(text))), C.size_t(len(text))
}
