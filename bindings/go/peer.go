package dipc

// #include "shim.h"
import "C"

import "context"

// Peer is the client that asked for a stream. The zero value is nobody that is known.
type Peer struct {
	// Text describes the client for logs, as "pid 4711, uid 1000".
	Text string
	// Transport is the one by which the client came: "shm", "tcp" or "ucx".
	Transport string
	// Process is the client's process; nil over tcp and ucx, which do not tell.
	Process *Process
	// Address is the client's, as "10.0.0.7:40112"; "" over shm. A port says nothing of the user
	// behind it.
	Address string
}

// Process is a process of this machine, as the system named it when the client connected.
type Process struct {
	PID int // 0 where it has none in this process's namespace
	UID int
	GID int
}

// String is the text.
func (p Peer) String() string { return p.Text }

// RequestPeer is the client that asked. The context is that of a [Provider] or a [Request], or
// made from it; the zero value for others.
func RequestPeer(ctx context.Context) Peer {
	if request := requestOf(ctx); request != nil {
		return request.peer
	}
	return Peer{}
}

// readPeer reads who made a request. What the library does not know stays empty.
func readPeer(request *C.dipc_request) (p Peer) {
	p.Text, _ = readText(func(buffer *C.char, size C.size_t, length *C.size_t) C.dipc_status {
		return C.dipc_request_peer(request, buffer, size, length, nil)
	})
	p.Transport, _ = readText(func(buffer *C.char, size C.size_t, length *C.size_t) C.dipc_status {
		return C.dipc_request_peer_transport(request, buffer, size, length, nil)
	})
	p.Address, _ = readText(func(buffer *C.char, size C.size_t, length *C.size_t) C.dipc_status {
		return C.dipc_request_peer_address(request, buffer, size, length, nil)
	})
	id := func(which C.int32_t) int { return int(C.dipc_request_peer_id(request, which)) }
	process := Process{id(C.DIPC_PEER_PID), id(C.DIPC_PEER_UID), id(C.DIPC_PEER_GID)}
	if process.UID >= 0 {
		p.Process = &process
	}
	return p
}
