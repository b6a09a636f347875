package dipc

// #include "shim.h"
import "C"

import "time"

// ServerOption changes what NewServer makes.
type ServerOption interface {
	setServer(*C.dipc_server_options) error
}

type serverOption func(*C.dipc_server_options) error

func (o serverOption) setServer(options *C.dipc_server_options) error { return o(options) }

// BodyOption changes how bodies travel: all those of a server, or those of one table that a client
// sends.
type BodyOption struct {
	server serverOption
	put    putOption
}

func (o BodyOption) setServer(options *C.dipc_server_options) error { return o.server(options) }
func (o BodyOption) setPut(r *putRequest) error                     { return o.put(r) }
func (o BodyOption) setExchange(r *exchangeRequest) error           { return o.put(&r.putRequest) }

// WithMaxStreams sets how many streams are served at once; one more is refused with [ErrBusy], unless the deadline of
// its context lets it wait for a place. An eighth of the places, but at most 64, is only for processes of the server's
// own user, over shm. Default 64.
func WithMaxStreams(streams int) ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		if streams < 1 {
			return invalid("at least one stream must be served at once, not %d", streams)
		}
		var failure *C.dipc_error
		return check(C.dipc_server_options_set_max_streams(o, C.size_t(streams), &failure), failure)
	})
}

// WithMaxProviders sets how many streams providers may serve at once, including streams whose clients have gone. Past
// the limit a request is refused with [ErrBusy]. A provider that waits should also wait for its context. Default: as
// many as [WithMaxStreams] allows, and 64 more.
func WithMaxProviders(providers int) ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		if providers < 1 {
			return invalid("at least one provider must be called at once, not %d", providers)
		}
		var failure *C.dipc_error
		return check(C.dipc_server_options_set_max_providers(o, C.size_t(providers), &failure), failure)
	})
}

// WithMaxRegionBytes sets the most shared memory for copies; past it bodies travel as bytes. Copies that clients have
// not given back count too. The memory of an [Arena] does not. Default 16 GiB.
func WithMaxRegionBytes(bytes uint64) ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		var failure *C.dipc_error
		return check(C.dipc_server_options_set_max_region_bytes(o, C.uint64_t(bytes), &failure), failure)
	})
}

// WithRegionBytes sets the size of one region of shared memory; a larger body gets one of its own.
// Default 64 MiB.
func WithRegionBytes(bytes uint64) ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		var failure *C.dipc_error
		return check(C.dipc_server_options_set_region_bytes(o, C.uint64_t(bytes), &failure), failure)
	})
}

// WithRegionIdle sets how long shared memory with nothing in use is kept for the next copies. Default
// 10 s.
func WithRegionIdle(idle time.Duration) ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		ns, err := nanoseconds("time that idle regions are kept", idle)
		if err != nil {
			return err
		}
		var failure *C.dipc_error
		return check(C.dipc_server_options_set_region_idle_ns(o, ns, &failure), failure)
	})
}

// WithInlineBytes sets up to which size a body travels as bytes rather than as lent memory. Default
// 4096.
func WithInlineBytes(bytes uint64) ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		var failure *C.dipc_error
		return check(C.dipc_server_options_set_inline_bytes(o, C.uint64_t(bytes), &failure), failure)
	})
}

// WithMaxLentBytes sets the most bytes of copies lent to one connection and not yet given back; past
// it bodies travel as bytes. The smaller of this and the client's [WithLentLimit] counts. Default 1
// GiB.
func WithMaxLentBytes(bytes uint64) ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		var failure *C.dipc_error
		return check(C.dipc_server_options_set_lent_limit_bytes(o, C.uint64_t(bytes), &failure), failure)
	})
}

// WithClientsOfAnyUser admits clients of every user of this machine, not only of the server's own.
func WithClientsOfAnyUser() ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		var failure *C.dipc_error
		return check(C.dipc_server_options_set_any_user(o, true, &failure), failure)
	})
}

// WithPackedBodies always sends bodies as bytes and never lends memory.
func WithPackedBodies() BodyOption {
	return BodyOption{
		server: func(o *C.dipc_server_options) error {
			var failure *C.dipc_error
			return check(C.dipc_server_options_set_body(o, C.DIPC_BODY_PACKED, &failure), failure)
		},
		put: func(r *putRequest) error {
			var failure *C.dipc_error
			return check(C.dipc_put_options_set_body(r.options, C.DIPC_BODY_PACKED, &failure), failure)
		},
	}
}

// WithLentBodies lends memory wherever that is possible, small bodies and the bodies of clients without libdipc's
// extension, included.
func WithLentBodies() BodyOption {
	return BodyOption{
		server: func(o *C.dipc_server_options) error {
			var failure *C.dipc_error
			return check(C.dipc_server_options_set_body(o, C.DIPC_BODY_LENT, &failure), failure)
		},
		put: func(r *putRequest) error {
			var failure *C.dipc_error
			return check(C.dipc_put_options_set_body(r.options, C.DIPC_BODY_LENT, &failure), failure)
		},
	}
}

// WithRemoteClients lets the server listen on tcp where other machines can connect. Without it such an
// address is refused with [ErrPermission]: tcp has neither encryption nor authentication.
func WithRemoteClients() ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		var failure *C.dipc_error
		return check(C.dipc_server_options_set_allow_remote(o, true, &failure), failure)
	})
}

// WithTrustedNetwork says that every process that can reach this server's network is trusted. Without it every ucx
// address is refused with [ErrPermission]: every process that connects there can read and write the memory of this
// process.
func WithTrustedNetwork() ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		var failure *C.dipc_error
		return check(C.dipc_server_options_set_trusted_network(o, true, &failure), failure)
	})
}

// WithSpin sets how long the server's I/O thread looks for work before it sleeps, with a whole core.
// Default 0.
func WithSpin(spin time.Duration) ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		ns, err := nanoseconds("time to spin", spin)
		if err != nil {
			return err
		}
		var failure *C.dipc_error
		return check(C.dipc_server_options_set_spin_ns(o, ns, &failure), failure)
	})
}

// WithServerTransport sets an option of a single transport, such as "ucx.TLS" to "tcp".
func WithServerTransport(name, value string) ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		return setTransport(name, value, func(name, value *C.char, failure **C.dipc_error) C.dipc_status {
			return C.dipc_server_options_set_transport(o, name, value, failure)
		})
	})
}

// Compression is how bodies that travel as bytes are compressed.
type Compression int32

// The ways to compress.
const (
	// LZ4 frames: fast.
	LZ4 Compression = C.DIPC_COMPRESSION_LZ4
	// ZSTD: small.
	ZSTD Compression = C.DIPC_COMPRESSION_ZSTD
)

// WithCompression compresses bodies, which then travel as bytes.
func WithCompression(compression Compression) BodyOption {
	return BodyOption{
		server: func(o *C.dipc_server_options) error {
			var failure *C.dipc_error
			return check(C.dipc_server_options_set_compression(o, C.int32_t(compression), &failure), failure)
		},
		put: func(r *putRequest) error {
			var failure *C.dipc_error
			return check(C.dipc_put_options_set_compression(r.options, C.int32_t(compression), &failure), failure)
		},
	}
}
