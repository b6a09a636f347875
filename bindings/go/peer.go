package dipc

// #include "shim.h"
import "C"

import (
	"context"
	"strings"
)

// Peer is the client that asked for a stream. The zero value stands for an unknown client.
type Peer struct {
	// Text describes the client for logs, as "pid 4711, uid 1000".
	Text string
	// Transport is the one by which the client came: "shm", "tls", "tcp" or "ucx".
	Transport string
	// Process is the client's process; nil over a network, which does not name processes.
	Process *Process
	// Address is the client's, as "10.0.0.7:40112"; "" over shm. A port does not show which user the client is.
	Address string
	// Certificate is what the client has shown over tls; nil if it has shown none.
	Certificate *Certificate
}

// Certificate says who a client is. It is signed by an authority that the server trusts.
type Certificate struct {
	Subject     string   // "CN=alice, O=Example"
	Names       []string // each after its kind: "DNS:a.example", "IP:10.0.0.7", "URI:spiffe://example/a"
	Fingerprint string   // SHA-256, in lower-case hexadecimal digits
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
	p.Certificate = readCertificate(request)
	id := func(which C.int32_t) int { return int(C.dipc_request_peer_id(request, which)) }
	process := Process{id(C.DIPC_PEER_PID), id(C.DIPC_PEER_UID), id(C.DIPC_PEER_GID)}
	if process.UID >= 0 {
		p.Process = &process
	}
	return p
}

// readCertificate reads what the client has shown, if anything.
func readCertificate(request *C.dipc_request) *Certificate {
	part := func(which C.int32_t) (string, C.dipc_status) {
		return readText(func(buffer *C.char, size C.size_t, length *C.size_t) C.dipc_status {
			return C.dipc_request_peer_certificate(request, which, buffer, size, length, nil)
		})
	}
	subject, status := part(C.DIPC_CERTIFICATE_SUBJECT)
	if status != C.DIPC_OK {
		return nil
	}
	names, _ := part(C.DIPC_CERTIFICATE_NAMES)
	fingerprint, _ := part(C.DIPC_CERTIFICATE_FINGERPRINT)
	certificate := &Certificate{Subject: subject, Fingerprint: fingerprint}
	if names != "" {
		certificate.Names = strings.Split(names, ", ")
	}
	return certificate
}
