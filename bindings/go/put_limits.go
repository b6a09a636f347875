package dipc

// #include "shim.h"
import "C"

import "time"

// WithSourceWindow sets how many batches, and how many bytes of their bodies, a client that sends a
// table may send before the program reads them. Default 16 batches, 256 MiB. The bytes are at most
// [WithMaxRegionBytes] divided by [WithMaxStreams], but 1 MiB is always allowed.
func WithSourceWindow(batches, bytes uint64) ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		var failure *C.dipc_error
		return check(C.dipc_server_options_set_put_window(o, C.uint64_t(batches), C.uint64_t(bytes), &failure), failure)
	})
}

// WithSourceValidation sets how much of what clients send is checked before the program gets it. Default
// [ValidateAuto].
func WithSourceValidation(validation Validation) ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		var failure *C.dipc_error
		return check(C.dipc_server_options_set_put_validation(o, C.int32_t(validation), &failure), failure)
	})
}

// WithSourceStallTimeout sets how long a client may say nothing while the program waits for its batches; then
// the reader of [Source.Accept] fails with [ErrTimeout]. Default [Forever]: a client that dies is noticed all
// the same.
func WithSourceStallTimeout(timeout time.Duration) ServerOption {
	return limit("time that a client may say nothing", timeout, func(o *C.dipc_server_options, ns C.uint64_t, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_options_set_put_stall_timeout_ns(o, ns, failure)
	})
}

// WithSourceMessageLimit sets the most memory that one message of a client may take here in addition to its body, as
// [WithMessageLimit] does for those of servers. Default 512 MiB, and 16 GiB for a client of the same user.
func WithSourceMessageLimit(bytes uint64) ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		var failure *C.dipc_error
		return check(C.dipc_server_options_set_put_message_limit_bytes(o, C.uint64_t(bytes), &failure), failure)
	})
}
