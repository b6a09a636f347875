package dipc

import "sync"

// handle holds a C object and frees it once: when it is closed and no call uses it any more. C forbids freeing an
// object that a call uses, and nothing else keeps goroutines from doing so.
type handle[P any] struct {
	what string
	free func(P)

	mu     sync.Mutex
	object P
	users  int // calls under way, and one for being open
	open   bool
}

func newHandle[P any](what string, object P, free func(P)) *handle[P] {
	return &handle[P]{what: what, free: free, object: object, users: 1, open: true}
}

// use gives the object for one call, after which done must be called.
func (h *handle[P]) use() (P, error) {
	var none P
	if h == nil {
		return none, invalid("this value was not made by a New function of the package")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.open {
		return none, closed(h.what)
	}
	h.users++
	return h.object, nil
}

// done ends a use; the last one after close frees the object.
func (h *handle[P]) done() {
	h.mu.Lock()
	h.users--
	last := h.users == 0
	h.mu.Unlock()
	if last {
		h.free(h.object)
	}
}

// close lets no further use begin, and calls the function end, if it is set, so that running calls return. It reports
// whether the handle was open.
func (h *handle[P]) close(end func(P)) bool {
	if h == nil {
		return false
	}
	h.mu.Lock()
	wasOpen := h.open
	h.open = false
	h.mu.Unlock()
	if !wasOpen {
		return false
	}
	if end != nil {
		end(h.object)
	}
	h.done()
	return true
}

// explain is the error of a call on the object: that the handle is closed, if it is.
func (h *handle[P]) explain(err error) error {
	if err == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.open {
		return closed(h.what)
	}
	return err
}
