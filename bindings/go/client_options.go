package dipc

// #include "shim.h"
import "C"

import (
	"math"
	"time"
	"unsafe"
)

// ClientOption changes what NewClient makes.
type ClientOption struct {
	set func(*C.dipc_client_options) error
}

// WithServersOfAnyUser takes tables from servers of every user of this machine, not only of the
// client's own.
func WithServersOfAnyUser() ClientOption {
	return ClientOption{func(o *C.dipc_client_options) error {
		var failure *C.dipc_error
		return check(C.dipc_client_options_set_any_user(o, true, &failure), failure)
	}}
}

// WithIdleTimeout sets how long a connection without a stream is kept for the next one. Default 60 s.
func WithIdleTimeout(timeout time.Duration) ClientOption {
	return ClientOption{func(o *C.dipc_client_options) error {
		ns, err := nanoseconds("idle timeout", timeout)
		if err != nil {
			return err
		}
		var failure *C.dipc_error
		return check(C.dipc_client_options_set_idle_timeout_ns(o, ns, &failure), failure)
	}}
}

// WithMaxIdle sets how many connections without a stream are kept for each server. Default 8.
func WithMaxIdle(connections uint) ClientOption {
	return ClientOption{func(o *C.dipc_client_options) error {
		var failure *C.dipc_error
		return check(C.dipc_client_options_set_max_idle(o, C.size_t(connections), &failure), failure)
	}}
}

// WithClientConnections sets the most connections to one server that takes many streams on one: streams beyond that
// share a connection, and so do streams that are polled, asynchronous or parts of a table. 0: each stream has its own.
// Default: 16.
func WithClientConnections(connections uint) ClientOption {
	return ClientOption{func(o *C.dipc_client_options) error {
		var failure *C.dipc_error
		return check(C.dipc_client_options_set_connections(o, C.size_t(connections), &failure), failure)
	}}
}

// WithClientTransport sets an option of a single transport, such as "ucx.TLS" to "tcp".
func WithClientTransport(name, value string) ClientOption {
	return ClientOption{func(o *C.dipc_client_options) error {
		return setTransport(name, value, func(name, value *C.char, failure **C.dipc_error) C.dipc_status {
			return C.dipc_client_options_set_transport(o, name, value, failure)
		})
	}}
}

// setTransport gives a setting of a transport to the library.
func setTransport(name, value string, set func(name, value *C.char, failure **C.dipc_error) C.dipc_status) error {
	key, err := cString("name of a setting", name)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(key))
	text, err := cString("value of a setting", value)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(text))
	var failure *C.dipc_error
	status := set(key, text, &failure)
	return check(status, failure)
}

// GetOption changes how one stream is fetched.
type GetOption interface{ setGet(*getRequest) error }

type getOption func(*getRequest) error

func (o getOption) setGet(r *getRequest) error { return o(r) }

// CallOption changes how a server is asked, to fetch a stream or to take one.
type CallOption struct {
	get getOption
	put putOption
}

func (o CallOption) setGet(r *getRequest) error { return o.get(r) }
func (o CallOption) setPut(r *putRequest) error { return o.put(r) }
func (o CallOption) setExchange(r *exchangeRequest) error {
	if err := o.put(&r.putRequest); err != nil {
		return err
	}
	return o.get(&r.answer)
}

// AnswerOption changes how the client reads the table that a server sends, in a get or an exchange.
type AnswerOption struct{ get getOption }

func (o AnswerOption) setGet(r *getRequest) error           { return o.get(r) }
func (o AnswerOption) setExchange(r *exchangeRequest) error { return o.get(&r.answer) }

// WithDataURI fetches the bodies from another URI than the metadata; the two are of [RoleMetadata]
// and [RoleData].
func WithDataURI(uri string) GetOption {
	return getOption(func(r *getRequest) error {
		text, err := cString("data URI", uri)
		C.free(unsafe.Pointer(r.uris[1])) // of the option given before
		r.uris[1] = text
		return err
	})
}

// WithHeaders sends headers to the server's program, which reads them by [RequestHeaders], in place of
// those of an earlier WithHeaders. They have at most 64 KiB, 5 bytes for each value included. A server
// that does not know headers refuses the request with [ErrUnsupported].
func WithHeaders(headers Headers) CallOption {
	return CallOption{
		get: func(r *getRequest) error {
			object, err := headers.build()
			if err != nil {
				return err
			}
			defer C.dipc_headers_free(object)
			var failure *C.dipc_error
			return check(C.dipc_get_options_set_headers(r.options, object, &failure), failure)
		},
		put: func(r *putRequest) error {
			object, err := headers.build()
			if err != nil {
				return err
			}
			defer C.dipc_headers_free(object)
			var failure *C.dipc_error
			return check(C.dipc_put_options_set_headers(r.options, object, &failure), failure)
		},
	}
}

// WithSendSecrets sends the header "authorization" also where others may read the connection: over tcp
// beyond the loopback interface, and over ucx. Without it a request with that header fails there with
// [ErrPermission], and nothing is sent.
func WithSendSecrets() CallOption {
	return CallOption{
		get: func(r *getRequest) error {
			var failure *C.dipc_error
			return check(C.dipc_get_options_set_send_secrets(r.options, true, &failure), failure)
		},
		put: func(r *putRequest) error {
			var failure *C.dipc_error
			return check(C.dipc_put_options_set_send_secrets(r.options, true, &failure), failure)
		},
	}
}

// WithChecksums adds a checksum to each message where a network could change it unseen: over tcp and ucx. A stream
// whose bytes were changed fails with [ErrProtocol]. Bodies travel as bytes from and to host memory then. A server
// without libdipc's extension is refused with [ErrUnsupported].
func WithChecksums() CallOption {
	return CallOption{
		get: func(r *getRequest) error {
			var failure *C.dipc_error
			return check(C.dipc_get_options_set_checksums(r.options, true, &failure), failure)
		},
		put: func(r *putRequest) error {
			var failure *C.dipc_error
			return check(C.dipc_put_options_set_checksums(r.options, true, &failure), failure)
		},
	}
}

// WithDeadline ends a stream of [Client.GetStream] at a time, with [ErrTimeout], and tells the server's program. In all
// other calls the deadline of the context does this. If both are set, the earlier one counts.
func WithDeadline(deadline time.Time) GetOption {
	return getOption(func(r *getRequest) error { return r.endAt(deadline) })
}

// WithConnectTimeout sets how long connecting may take, up to the server's first answer. Default 10 s. If the provider
// takes longer, the server first sends a note that the request has arrived. This note counts as the answer; after it
// only the context and [WithStallTimeout] end the wait.
func WithConnectTimeout(timeout time.Duration) CallOption {
	return CallOption{
		get: func(r *getRequest) error {
			ns, err := nanoseconds("connect timeout", timeout)
			if err != nil {
				return err
			}
			var failure *C.dipc_error
			return check(C.dipc_get_options_set_connect_timeout_ns(r.options, ns, &failure), failure)
		},
		put: func(r *putRequest) error {
			ns, err := nanoseconds("connect timeout", timeout)
			if err != nil {
				return err
			}
			var failure *C.dipc_error
			return check(C.dipc_put_options_set_connect_timeout_ns(r.options, ns, &failure), failure)
		},
	}
}

// WithStallTimeout sets how long the server may say nothing while something is waited for; then the stream fails with
// [ErrTimeout]. Default: no limit; a server that dies is noticed without one.
func WithStallTimeout(timeout time.Duration) CallOption {
	return CallOption{
		get: func(r *getRequest) error {
			ns, err := nanoseconds("stall timeout", timeout)
			if err != nil {
				return err
			}
			var failure *C.dipc_error
			return check(C.dipc_get_options_set_stall_timeout_ns(r.options, ns, &failure), failure)
		},
		put: func(r *putRequest) error {
			ns, err := nanoseconds("stall timeout", timeout)
			if err != nil {
				return err
			}
			var failure *C.dipc_error
			return check(C.dipc_put_options_set_stall_timeout_ns(r.options, ns, &failure), failure)
		},
	}
}

// WithWindow sets how many batches, and how many bytes of their bodies, the server may send before they are read.
// Default 16 batches, 256 MiB.
func WithWindow(batches, bytes uint64) AnswerOption {
	return AnswerOption{func(r *getRequest) error {
		var failure *C.dipc_error
		return check(C.dipc_get_options_set_window(r.options, C.uint64_t(batches), C.uint64_t(bytes), &failure), failure)
	}}
}

// WithLentLimit sets the most bytes of copies that the server may lend at once, while batches are
// kept; past it bodies travel as bytes. Default 1 GiB.
func WithLentLimit(bytes uint64) AnswerOption {
	return AnswerOption{func(r *getRequest) error {
		var failure *C.dipc_error
		return check(C.dipc_get_options_set_lent_limit_bytes(r.options, C.uint64_t(bytes), &failure), failure)
	}}
}

// WithMessageLimit sets the most memory that one message may take here in addition to its body: for unpacked buffers,
// copies to be checked, the schema, and the stream's dictionaries together. A message with a larger body may take as
// much as its body. A message that needs more is an error. Default 512 MiB, and 16 GiB for a server of the same user.
func WithMessageLimit(bytes uint64) GetOption {
	return getOption(func(r *getRequest) error {
		var failure *C.dipc_error
		return check(C.dipc_get_options_set_message_limit_bytes(r.options, C.uint64_t(bytes), &failure), failure)
	})
}

// Device is where the arrays of a stream shall be: [Host], [CUDA] or [AsSent].
type Device struct {
	deviceType C.int32_t
	id         C.int64_t
}

var (
	// Host is the host's memory, which arrow-go reads.
	Host = Device{C.ARROW_DEVICE_CPU, 0}
	// AsSent is where the server has them, if this process reaches that without a copy, else the host.
	AsSent = Device{C.DIPC_DEVICE_AS_SENT, 0}
)

// CUDA is the CUDA device with this number, as the driver counts in this process.
func CUDA(id int64) Device { return Device{C.ARROW_DEVICE_CUDA, C.int64_t(id)} }

// WithDevice sets where arrays shall be. Default [Host]. Those on a device are for [Client.GetStream]:
// arrow-go cannot read them, and Get fails with [ErrUnsupported].
func WithDevice(device Device) GetOption {
	return getOption(func(r *getRequest) error {
		var failure *C.dipc_error
		return check(C.dipc_get_options_set_device(r.options, device.deviceType, device.id, &failure), failure)
	})
}

// WithReaderSpin sets how long a goroutine that waits for the stream looks for it before it sleeps, with
// a whole core. Default 0.
func WithReaderSpin(spin time.Duration) AnswerOption {
	return AnswerOption{func(r *getRequest) error {
		ns, err := nanoseconds("time to spin", spin)
		if err != nil {
			return err
		}
		r.spin = spin
		var failure *C.dipc_error
		return check(C.dipc_get_options_set_spin_ns(r.options, ns, &failure), failure)
	}}
}

// WithConnections sets how many connections carry the stream if the transport can spread bodies
// over several (tcp). Default 1.
func WithConnections(connections uint32) CallOption {
	return CallOption{
		get: func(r *getRequest) error {
			var failure *C.dipc_error
			return check(C.dipc_get_options_set_connections(r.options, C.uint32_t(connections), &failure), failure)
		},
		put: func(r *putRequest) error {
			var failure *C.dipc_error
			count := C.uint16_t(min(connections, math.MaxUint16))
			return check(C.dipc_put_options_set_connections(r.options, count, &failure), failure)
		},
	}
}

// Validation is how much of what arrives is checked before it is handed out.
type Validation int32

// The levels of validation.
const (
	// ValidateAuto checks only the structure for a server of the same user, and the values too for other servers.
	ValidateAuto Validation = C.DIPC_VALIDATION_AUTO
	// ValidateStructure checks lengths, counts and ranges: no cost per row.
	ValidateStructure Validation = C.DIPC_VALIDATION_STRUCTURE
	// ValidateFull checks the values too: offsets, views, type ids, dictionary indices, UTF-8.
	ValidateFull Validation = C.DIPC_VALIDATION_FULL
)

// WithValidation sets the level of validation. Default [ValidateAuto].
func WithValidation(validation Validation) AnswerOption {
	return AnswerOption{func(r *getRequest) error {
		var failure *C.dipc_error
		return check(C.dipc_get_options_set_validation(r.options, C.int32_t(validation), &failure), failure)
	}}
}
