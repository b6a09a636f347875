package dipc

// #include "shim.h"
import "C"

import "sync"

// token is a dipc_cancel that may be triggered at any time, also after it was freed. It knows
// nothing of the stream that it ends, so that a context which holds it does not hold the stream.
type token struct {
	mu     sync.Mutex
	object *C.dipc_cancel // nil once freed
}

func newToken() (*token, error) {
	t := &token{}
	var failure *C.dipc_error
	if err := check(C.dipc_cancel_new(&t.object, &failure), failure); err != nil {
		return nil, err
	}
	return t, nil
}

// trigger ends the calls that the token was given to.
func (t *token) trigger() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.object != nil {
		C.dipc_cancel_trigger(t.object, nil)
	}
}

// free frees the token; no call that it was given to may be running.
func (t *token) free() {
	t.mu.Lock()
	defer t.mu.Unlock()
	C.dipc_cancel_free(t.object)
	t.object = nil
}
