package dipc

// #include "shim.h"
import "C"

import (
	"context"
	"sync"
)

// token is a dipc_cancel that may be triggered at any time, also after it was freed. It does not refer to the stream
// that it ends, so a context that holds the token does not keep the stream alive.
type token struct {
	unhook func() bool // takes the token off its context

	mu     sync.Mutex
	object *C.dipc_cancel // nil once freed, and if wake is set
	wake   func()         // nil once freed
}

// newToken makes a token that is triggered when ctx ends.
func newToken(ctx context.Context) (*token, error) {
	t := &token{}
	var failure *C.dipc_error
	if err := check(C.dipc_cancel_new(&t.object, &failure), failure); err != nil {
		return nil, err
	}
	t.unhook = context.AfterFunc(ctx, t.trigger)
	return t, nil
}

// newWakingToken makes a token that is triggered when ctx ends, and then calls wake.
func newWakingToken(ctx context.Context, wake func()) *token {
	t := &token{wake: wake}
	t.unhook = context.AfterFunc(ctx, t.trigger)
	return t
}

// trigger ends the calls that the token was given to.
func (t *token) trigger() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.object != nil {
		C.dipc_cancel_trigger(t.object, nil)
	}
	if t.wake != nil {
		t.wake()
	}
}

// free frees the token; no call that it was given to may be running. nil does nothing.
func (t *token) free() {
	if t == nil {
		return
	}
	t.unhook()
	t.mu.Lock()
	defer t.mu.Unlock()
	C.dipc_cancel_free(t.object)
	t.object, t.wake = nil, nil
}
