package dipc

// #include "shim.h"
import "C"

import "time"

// WithMaxConnections sets how many connections the server keeps; one more client is refused with [ErrBusy]. Default: as
// many as take half of the files that the process may open. A connection over shm takes two files, one over tcp a file
// for each socket.
func WithMaxConnections(connections int) ServerOption {
	return atLeastOne("connection", connections, func(o *C.dipc_server_options, n C.size_t, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_options_set_max_connections(o, n, failure)
	})
}

// WithMaxConnectionsPerPeer sets how many connections one other machine may have, or one other user of
// this machine; one more is refused with [ErrBusy]. Default: half of [WithMaxConnections].
func WithMaxConnectionsPerPeer(connections int) ServerOption {
	return atLeastOne("connection", connections, func(o *C.dipc_server_options, n C.size_t, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_options_set_max_connections_per_peer(o, n, failure)
	})
}

// WithMaxStreamsPerPeer sets how many streams one other machine may have at once, or one other user of
// this machine; one more is refused with [ErrBusy]. Default: half of [WithMaxStreams].
func WithMaxStreamsPerPeer(streams int) ServerOption {
	return atLeastOne("stream", streams, func(o *C.dipc_server_options, n C.size_t, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_options_set_max_streams_per_peer(o, n, failure)
	})
}

// WithMaxStreamsPerConnection sets how many streams one connection may carry at once, for clients that share
// connections. Default: as [WithMaxStreams]. With 1, each stream has a connection.
func WithMaxStreamsPerConnection(streams int) ServerOption {
	return atLeastOne("stream", streams, func(o *C.dipc_server_options, n C.size_t, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_options_set_max_streams_per_connection(o, n, failure)
	})
}

// WithMaxRequestBytes sets how much memory requests of more than 64 KiB may take together while they have come only in
// part. A client whose request does not fit is disconnected. Default 64 MiB.
func WithMaxRequestBytes(bytes uint64) ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		var failure *C.dipc_error
		return check(C.dipc_server_options_set_max_request_bytes(o, C.uint64_t(bytes), &failure), failure)
	})
}

// Forever is a time limit that never ends, for the options below.
const Forever time.Duration = 1<<63 - 1

// WithCreditTimeout sets how long a stream may wait for its client to take batches while the server has no place for
// other clients; then the stream fails with [ErrTimeout]. Default 30 s.
func WithCreditTimeout(timeout time.Duration) ServerOption {
	return limit("time for a client to take batches", timeout, func(o *C.dipc_server_options, ns C.uint64_t, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_options_set_credit_timeout_ns(o, ns, failure)
	})
}

// WithHandshakeTimeout sets how long a client may take for the handshake of TLS, and until all
// connections of one stream have come; then they are closed. Default 10 s.
func WithHandshakeTimeout(timeout time.Duration) ServerOption {
	return limit("time for a handshake", timeout, func(o *C.dipc_server_options, ns C.uint64_t, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_options_set_handshake_timeout_ns(o, ns, failure)
	})
}

// WithRequestTimeout sets how long a client may take from its connection to the end of its first request;
// then the connection is closed. Default 30 s.
func WithRequestTimeout(timeout time.Duration) ServerOption {
	return limit("time for a request", timeout, func(o *C.dipc_server_options, ns C.uint64_t, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_options_set_request_timeout_ns(o, ns, failure)
	})
}

// WithClientIdleTimeout sets how long, up to twice as long, the server keeps a connection over which the
// client asks for nothing. A client connects again when it needs to. Default 10 min.
func WithClientIdleTimeout(timeout time.Duration) ServerOption {
	return limit("time that idle clients are kept", timeout, func(o *C.dipc_server_options, ns C.uint64_t, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_options_set_idle_timeout_ns(o, ns, failure)
	})
}

// atLeastOne is an option of how many there may be.
func atLeastOne(
	what string, number int, set func(*C.dipc_server_options, C.size_t, **C.dipc_error) C.dipc_status,
) ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		if number < 1 {
			return invalid("at least one %s must be allowed, not %d", what, number)
		}
		var failure *C.dipc_error
		status := set(o, C.size_t(number), &failure)
		return check(status, failure)
	})
}

// limit is an option of how long something may take.
func limit(
	what string, timeout time.Duration, set func(*C.dipc_server_options, C.uint64_t, **C.dipc_error) C.dipc_status,
) ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		ns, err := nanoseconds(what, timeout)
		if err != nil {
			return err
		}
		if timeout == Forever {
			ns = C.DIPC_FOREVER
		}
		var failure *C.dipc_error
		status := set(o, ns, &failure)
		return check(status, failure)
	})
}
