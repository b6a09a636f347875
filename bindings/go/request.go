package dipc

// #include "shim.h"
import "C"

import (
	"context"
	"sync"
	"time"
)

// How soon a provider that waits for its context learns that the client has gone. A goroutine that asks
// now and then costs less than one that waits for a descriptor of the library's in a thread of its own.
const watchInterval = 10 * time.Millisecond

// requestContext is the context of a provider's stream: it ends with the stream, and when the client
// has gone or has cancelled. It asks the library only when it is asked itself, and starts a goroutine
// only when somebody waits for it.
type requestContext struct {
	mu       sync.Mutex
	request  *C.dipc_request // nil once the stream is over
	peer     string
	done     chan struct{}
	watching bool
	err      error
}

func newRequestContext(request *C.dipc_request) *requestContext {
	peer, _ := readText(func(buffer *C.char, size C.size_t, length *C.size_t) C.dipc_status {
		return C.dipc_request_peer(request, buffer, size, length, nil)
	})
	return &requestContext{request: request, peer: peer, done: make(chan struct{})}
}

type peerKey struct{}

// Peer is who asked for the stream, for logs, as "pid 4711, uid 1000". The context is that of a
// [Provider], or made from it; "" for others.
func Peer(ctx context.Context) string {
	peer, _ := ctx.Value(peerKey{}).(string)
	return peer
}

// Deadline says that there is none.
func (*requestContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value gives the peer.
func (c *requestContext) Value(key any) any {
	if key == (peerKey{}) {
		return c.peer
	}
	return nil
}

// Done gives a channel that is closed when the context ends.
func (c *requestContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.watching && c.err == nil {
		c.watching = true
		go c.watch()
	}
	return c.done
}

// Err asks whether the context has ended.
func (c *requestContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && bool(C.dipc_request_is_cancelled(c.request)) {
		c.cancel()
	}
	return c.err
}

func (c *requestContext) watch() {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for c.Err() == nil {
		select {
		case <-c.done:
		case <-ticker.C:
		}
	}
}

// cancel ends the context; c.mu is held and c.err is nil.
func (c *requestContext) cancel() {
	c.err = context.Canceled
	close(c.done)
}

// end says that the request is not valid any more.
func (c *requestContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.request = nil
	if c.err == nil {
		c.cancel()
	}
}
