package dipc

// #include "shim.h"
import "C"

import (
	"context"
	"math"
	"os"
	"runtime"
	"runtime/cgo"
	"syscall"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
)

// Server serves tables to clients. Its methods may be called by any goroutine, also at once. It must be closed, and
// stay reachable until then: the garbage collector closes a server that is not.
type Server struct {
	handle   *handle[*C.dipc_server]
	requests *readiness // of the pull form
	loans    *loans
}

// NewServer makes a server that serves nothing yet.
func NewServer(options ...ServerOption) (*Server, error) {
	if libraryError != nil {
		return nil, libraryError
	}
	var failure *C.dipc_error
	var set *C.dipc_server_options
	if err := check(C.dipc_server_options_new(&set, &failure), failure); err != nil {
		return nil, err
	}
	defer C.dipc_server_options_free(set)
	for _, option := range options {
		if option == nil {
			continue
		}
		if err := option.setServer(set); err != nil {
			return nil, err
		}
	}
	var object *C.dipc_server
	failure = nil
	if err := check(C.dipc_server_new(set, &object, &failure), failure); err != nil {
		return nil, err
	}
	requests := newReadiness(func(fd *C.int, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_request_fd(object, fd, failure)
	})
	own := newHandle("server", object, func(object *C.dipc_server) {
		requests.close()
		C.dipc_server_free(object)
	})
	s := &Server{handle: own, requests: requests, loans: &loans{server: own}}
	// Closing runs on its own goroutine: it may wait a moment for providers, and would delay other clean-ups.
	runtime.AddCleanup(s, func(h *handle[*C.dipc_server]) { go h.close(stopNow) }, s.handle)
	return s, nil
}

// call runs one call of the library's on the server.
func (s *Server) call(run func(*C.dipc_server, **C.dipc_error) C.dipc_status) error {
	object, err := s.handle.use()
	if err != nil {
		return err
	}
	defer s.handle.done()
	var failure *C.dipc_error
	status := run(object, &failure)
	return check(status, failure)
}

// Listen listens at uri, "shm:@name" or "shm:/path" for one, and returns the whole URI that reaches
// the server. It may be called for several addresses.
func (s *Server) Listen(uri string) (string, error) {
	address, err := cString("URI", uri)
	if err != nil {
		return "", err
	}
	defer C.free(unsafe.Pointer(address))
	var bound [C.DIPC_URI_BYTES]byte
	var length C.size_t
	err = s.call(func(object *C.dipc_server, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_listen(object, address, (*C.char)(pointer(bound[:])), C.size_t(len(bound)), &length, failure)
	})
	if err != nil {
		return "", err
	}
	return string(bound[:length]), nil
}

// ListenFile takes a socket that listens already, such as one from a service manager, and returns the whole URI that
// reaches the server. The scheme is "shm" for a Unix stream socket, "tcp" or "tls" for a TCP socket. The file stays the
// caller's, who may close it.
func (s *Server) ListenFile(scheme string, socket *os.File) (string, error) {
	name, err := cString("scheme", scheme)
	if err != nil {
		return "", err
	}
	defer C.free(unsafe.Pointer(name))
	conn, err := socket.SyscallConn()
	if err != nil {
		return "", err
	}
	own := -1
	var failed error
	if err := conn.Control(func(fd uintptr) { own, failed = dupFD(int(fd)) }); err != nil {
		return "", err
	}
	if failed != nil {
		return "", failed
	}
	var bound [C.DIPC_URI_BYTES]byte
	var length C.size_t
	err = s.call(func(object *C.dipc_server, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_listen_fd(object, name, C.int32_t(own), (*C.char)(pointer(bound[:])), C.size_t(len(bound)), &length, failure)
	})
	if err != nil {
		_ = syscall.Close(own)
		return "", err
	}
	return string(bound[:length]), nil
}

// dupFD copies a descriptor, for this process alone.
func dupFD(fd int) (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	own, err := syscall.Dup(fd)
	if err == nil {
		syscall.CloseOnExec(own)
	}
	return own, err
}

// IsReady tells whether the server takes requests: it listens, and neither drains nor was stopped.
func (s *Server) IsReady() bool {
	ready := false
	err := s.call(func(object *C.dipc_server, _ **C.dipc_error) C.dipc_status {
		ready = bool(C.dipc_server_is_ready(object))
		return C.DIPC_OK
	})
	return err == nil && ready
}

// Drain refuses requests from now on, with ErrBusy. Streams under way go on, until Shutdown or Close. Clients
// are told of the servers at elsewhere, best first, which have the same tickets, and ask there.
func (s *Server) Drain(elsewhere ...string) error {
	uris := make([]*C.char, len(elsewhere)+1)
	for i, uri := range elsewhere {
		text, err := cString("URI", uri)
		if err != nil {
			return err
		}
		defer C.free(unsafe.Pointer(text))
		uris[i] = text
	}
	return s.call(func(object *C.dipc_server, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_drain(object, &uris[0], C.size_t(len(elsewhere)), failure)
	})
}

// Role is the part of a stream that a URI gives: all of it, metadata only, or bodies only.
type Role int32

// The roles of a URI.
const (
	// RoleBoth: metadata and bodies over one connection.
	RoleBoth Role = C.DIPC_ROLE_BOTH
	// RoleMetadata: metadata alone.
	RoleMetadata Role = C.DIPC_ROLE_METADATA
	// RoleData: bodies alone.
	RoleData Role = C.DIPC_ROLE_DATA
)

// Location is the URI of the first address that the server listens at, for one role. A client that takes two URIs needs
// one for [RoleMetadata] and one for [RoleData].
func (s *Server) Location(role Role) (string, error) {
	var text string
	err := s.call(func(object *C.dipc_server, failure **C.dipc_error) (status C.dipc_status) {
		text, status = readText(func(buffer *C.char, size C.size_t, length *C.size_t) C.dipc_status {
			return C.dipc_server_location(object, C.int32_t(role), buffer, size, length, failure)
		})
		return status
	})
	return text, err
}

// ServeOption changes how one ticket is served.
type ServeOption struct{ flag C.uint32_t }

// Deterministic says that the provider gives the same batches each time, so that clients that are not
// libdipc may fetch metadata and bodies over two connections.
func Deterministic() ServeOption { return ServeOption{C.DIPC_PROVIDER_DETERMINISTIC} }

func flagsOf(options []ServeOption) (flags C.uint32_t) {
	for _, option := range options {
		flags |= option.flag
	}
	return flags
}

// Serve serves ticket, which may be any bytes, by calling provider for each stream.
func (s *Server) Serve(ticket string, provider Provider, options ...ServeOption) error {
	if provider == nil {
		return invalid("the provider of ticket %q is nil", ticket)
	}
	return s.serve(ticket, &ticketService{provider: provider, ticket: ticket}, options)
}

// serve makes own answer the requests for ticket.
func (s *Server) serve(ticket string, own service, options []ServeOption) error {
	name, length := cBytes(ticket)
	kept := cgo.NewHandle(own)
	err := s.call(func(object *C.dipc_server, failure **C.dipc_error) C.dipc_status {
		return C.dipcgo_server_serve(object, name, length, C.uintptr_t(kept), flagsOf(options), failure)
	})
	if err != nil {
		kept.Delete()
	}
	return err
}

// Publish serves a table under ticket that can be fetched any number of times, by many clients at
// once. The batches are retained until the ticket is withdrawn, or the server closed, and the last
// client has given them back.
func (s *Server) Publish(ticket string, schema *arrow.Schema, batches ...arrow.RecordBatch) error {
	return s.put(ticket, schema, batches, func(object *C.dipc_server, t table, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_publish(object, t.ticket, t.length, t.schema, t.batches, t.count, failure)
	})
}

// Replace publishes a table under ticket, in place of an earlier table or provider. The ticket is known at every
// moment, and running streams go on with the old one.
func (s *Server) Replace(ticket string, schema *arrow.Schema, batches ...arrow.RecordBatch) error {
	return s.put(ticket, schema, batches, func(object *C.dipc_server, t table, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_replace(object, t.ticket, t.length, t.schema, t.batches, t.count, failure)
	})
}

// table is a table and its ticket, as C takes them.
type table struct {
	ticket  *C.uint8_t
	length  C.size_t
	schema  *C.struct_ArrowSchema
	batches *C.struct_ArrowDeviceArray
	count   C.size_t
}

// put gives a table to the library by call.
func (s *Server) put(
	ticket string, schema *arrow.Schema, batches []arrow.RecordBatch,
	call func(object *C.dipc_server, t table, failure **C.dipc_error) C.dipc_status,
) (err error) {
	if schema == nil {
		return invalid("the schema of ticket %q is nil", ticket)
	}
	size := C.size_t(max(len(batches), 1))
	arrays := (*C.struct_ArrowDeviceArray)(C.calloc(size, C.sizeof_struct_ArrowDeviceArray))
	described := (*C.struct_ArrowSchema)(C.calloc(1, C.sizeof_struct_ArrowSchema))
	defer C.free(unsafe.Pointer(arrays))
	defer C.free(unsafe.Pointer(described))
	exported := unsafe.Slice(arrays, len(batches))
	defer func() {
		if err == nil {
			return // the library has taken them
		}
		C.dipcgo_schema_release(described)
		for i := range exported {
			C.dipcgo_array_release(&exported[i].array)
		}
	}()
	if err := exportSchema(schema, described); err != nil {
		return err
	}
	for i, batch := range batches {
		if batch == nil {
			return invalid("batch %d of ticket %q is nil", i, ticket)
		}
		if err := sameColumns(schema, batch.Schema()); err != nil {
			return err
		}
		if err := exportBatch(batch, &exported[i], nil); err != nil {
			return err
		}
	}
	name, length := cBytes(ticket)
	return s.call(func(object *C.dipc_server, failure **C.dipc_error) C.dipc_status {
		return call(object, table{name, length, described, arrays, C.size_t(len(batches))}, failure)
	})
}

// SetDescription says what ticket stands for, for [Client.Describe] and [Client.List]. It is for tickets of
// [Server.Serve]: the library knows this for published tables. Without endpoints, the ticket itself is the only
// endpoint.
func (s *Server) SetDescription(ticket string, description *Description) error {
	if description == nil {
		return invalid("the description of ticket %q is nil", ticket)
	}
	built, err := description.build()
	if err != nil {
		return err
	}
	defer C.dipc_description_free(built)
	name, length := cBytes(ticket)
	return s.call(func(object *C.dipc_server, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_set_description(object, name, length, built, failure)
	})
}

// Withdraw stops serving ticket; streams under way go on.
func (s *Server) Withdraw(ticket string) error {
	name, length := cBytes(ticket)
	return s.call(func(object *C.dipc_server, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_withdraw(object, name, length, failure)
	})
}

// Tickets lists what is served now, in byte order.
func (s *Server) Tickets() ([]string, error) {
	var tickets []string
	err := s.call(func(object *C.dipc_server, _ **C.dipc_error) C.dipc_status {
		for {
			ticket, status := readBytes(func(buffer *C.uint8_t, size C.size_t, length *C.size_t) C.dipc_status {
				return C.dipc_server_ticket(object, C.size_t(len(tickets)), buffer, size, length, nil)
			})
			if status == C.DIPC_ERR_NOT_FOUND {
				return C.DIPC_OK // all of them
			}
			if status != C.DIPC_OK {
				return status
			}
			tickets = append(tickets, ticket)
		}
	})
	return tickets, err
}

// Shutdown lets no more streams begin and waits until those under way have ended. When ctx ends
// first, they are cut, and the error is that of ctx too. Close must still be called.
func (s *Server) Shutdown(ctx context.Context) error {
	cut := context.AfterFunc(ctx, func() {
		// A server that was closed meanwhile is stopped already.
		_ = s.stop(0)
	})
	defer cut()
	if err := s.stop(math.MaxUint64); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return contextEnded(ctx, "the streams that were under way")
	}
	return nil
}

func (s *Server) stop(deadline C.uint64_t) error {
	return s.call(func(object *C.dipc_server, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_stop(object, deadline, failure)
	})
}

func stopNow(object *C.dipc_server) { C.dipc_server_stop(object, 0, nil) }

// Close stops the server at once: streams under way are cut, addresses are free again. Batches that
// clients hold stay valid. It may be called again, and always returns nil.
func (s *Server) Close() error {
	s.handle.close(stopNow)
	return nil
}

// ServerStats are the figures of a server.
type ServerStats struct {
	Connections     uint64 // open now
	StreamsActive   uint64 // served now
	StreamsServed   uint64 // begun since the start
	Batches         uint64 // sent since the start
	BytesLent       uint64 // body bytes lent where they lay
	BytesCopied     uint64 // body bytes copied on the host: into shared memory that is lent; bodies of up to 1 KiB that are sent are copies
	BytesSent       uint64 // body bytes sent through connections
	LentOutstanding uint64 // buffers lent and not yet given back
	RegionBytes     uint64 // bytes of regions for copies that exist now

	BytesCopiedOnDevice uint64 // body bytes copied within a GPU's memory and lent from there
	BytesStaged         uint64 // body bytes copied from a GPU's memory to the host's, then lent or sent

	Rows               uint64 // of the batches sent since the start
	BatchesReceived    uint64 // sent by clients since the start
	RowsReceived       uint64 // of these batches
	BytesReceived      uint64 // body bytes of these batches, lent ones included
	ConnectionsOpened  uint64 // accepted since the start
	ConnectionsRefused uint64 // not accepted, since the start
	RequestsFinished   uint64 // ended well, since the start
	RequestsFailed     uint64 // begun, and ended otherwise, since the start
	RequestsRefused    uint64 // not begun, since the start
	RowsRead           uint64 // of the batches that tables and providers gave, left out by a filter or a range or not
}

// Stats gives the server's figures so far.
func (s *Server) Stats() (ServerStats, error) {
	var stats ServerStats
	err := s.call(func(object *C.dipc_server, failure **C.dipc_error) C.dipc_status {
		return readStats(failure, func(stat C.int32_t, out *C.uint64_t, failure **C.dipc_error) C.dipc_status {
			return C.dipc_server_stat(object, stat, out, failure)
		}, map[C.int32_t]*uint64{
			C.DIPC_SERVER_STAT_CONNECTIONS:      &stats.Connections,
			C.DIPC_SERVER_STAT_STREAMS_ACTIVE:   &stats.StreamsActive,
			C.DIPC_SERVER_STAT_STREAMS_SERVED:   &stats.StreamsServed,
			C.DIPC_SERVER_STAT_BATCHES:          &stats.Batches,
			C.DIPC_SERVER_STAT_BYTES_LENT:       &stats.BytesLent,
			C.DIPC_SERVER_STAT_BYTES_COPIED:     &stats.BytesCopied,
			C.DIPC_SERVER_STAT_BYTES_SENT:       &stats.BytesSent,
			C.DIPC_SERVER_STAT_LENT_OUTSTANDING: &stats.LentOutstanding,
			C.DIPC_SERVER_STAT_REGION_BYTES:     &stats.RegionBytes,

			C.DIPC_SERVER_STAT_BYTES_COPIED_ON_DEVICE: &stats.BytesCopiedOnDevice,
			C.DIPC_SERVER_STAT_BYTES_STAGED:           &stats.BytesStaged,

			C.DIPC_SERVER_STAT_ROWS:                &stats.Rows,
			C.DIPC_SERVER_STAT_BATCHES_RECEIVED:    &stats.BatchesReceived,
			C.DIPC_SERVER_STAT_ROWS_RECEIVED:       &stats.RowsReceived,
			C.DIPC_SERVER_STAT_BYTES_RECEIVED:      &stats.BytesReceived,
			C.DIPC_SERVER_STAT_CONNECTIONS_OPENED:  &stats.ConnectionsOpened,
			C.DIPC_SERVER_STAT_CONNECTIONS_REFUSED: &stats.ConnectionsRefused,
			C.DIPC_SERVER_STAT_REQUESTS_FINISHED:   &stats.RequestsFinished,
			C.DIPC_SERVER_STAT_REQUESTS_FAILED:     &stats.RequestsFailed,
			C.DIPC_SERVER_STAT_REQUESTS_REFUSED:    &stats.RequestsRefused,
			C.DIPC_SERVER_STAT_ROWS_READ:           &stats.RowsRead,
		})
	})
	return stats, err
}

// StatsText gives all figures, with their histograms and by label, in Prometheus' text format, version
// 0.0.4. A label is a ticket, or what [SetLabel] says.
func (s *Server) StatsText() (string, error) {
	var text string
	err := s.call(func(object *C.dipc_server, failure **C.dipc_error) (status C.dipc_status) {
		text, status = readText(func(buffer *C.char, size C.size_t, length *C.size_t) C.dipc_status {
			return C.dipc_server_stats_text(object, buffer, size, length, failure)
		})
		return status
	})
	return text, err
}
