package dipc

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

// watched is a descriptor of the library's that Go's runtime watches: goroutines that wait for it
// occupy no thread of the system.
type watched struct {
	file *os.File
	fd   C.int // that of file
	conn syscall.RawConn
}

// watch watches a copy of the descriptor, which may outlive it.
func watch(fd C.int) (*watched, error) {
	own, errno := C.dipcgo_fd_copy(fd)
	if own < 0 {
		return nil, cannotWatch(errno)
	}
	file := os.NewFile(uintptr(own), "libdipc")
	conn, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, cannotWatch(err)
	}
	return &watched{file: file, fd: own, conn: conn}, nil
}

// wait returns once the descriptor may be readable, or at the time of endAt. One goroutine at a time.
func (w *watched) wait() error {
	// The runtime reports only changes, so the first look is at what is there already.
	woken := false
	err := w.conn.Read(func(uintptr) bool {
		looked := woken
		woken = true
		return looked || w.isReadable()
	})
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return cannotWatch(err)
	}
	return nil
}

// waitUntil is wait, but when ctx ends it fails with the error of ctx.
func (w *watched) waitUntil(ctx context.Context) error {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		w.endAt(time.Now())
		close(woken)
	})
	err := w.wait()
	if !stop() {
		<-woken
		w.endAt(time.Time{}) // the next call has a context of its own
		return ctx.Err()
	}
	return err
}

func (w *watched) isReadable() bool { return bool(C.dipcgo_fd_readable(w.fd)) }

// endAt ends waits at a time; a zero time never ends them.
func (w *watched) endAt(at time.Time) {
	// It fails if the runtime does not watch the descriptor. Then wait fails too, so the error can be ignored here.
	_ = w.file.SetReadDeadline(at)
}

// close ends the watching; nobody may be waiting. nil does nothing.
func (w *watched) close() {
	if w != nil {
		w.file.Close()
	}
}

func cannotWatch(err error) error {
	failure := &Error{Status: ErrOutOfResources, Text: "a descriptor cannot be watched: " + err.Error()}
	if !errors.As(err, &failure.Errno) {
		failure.causes = []error{err}
	}
	return failure
}

// readiness makes calls that the library answers with DIPC_NOTHING until its descriptor is readable.
type readiness struct {
	fd    func(fd *C.int, failure **C.dipc_error) C.dipc_status
	turn  chan struct{} // has a value while a goroutine makes calls
	ready *watched      // nil until something is waited for

	mu      sync.Mutex
	ahead   int                // goroutines in try
	giveWay context.CancelFunc // ends the wait of one in tryLast; nil while none waits
}

func newReadiness(fd func(fd *C.int, failure **C.dipc_error) C.dipc_status) *readiness {
	return &readiness{fd: fd, turn: make(chan struct{}, 1)}
}

// errWayGiven says that a goroutine in tryLast has let another one go first.
var errWayGiven = errors.New("another call goes first")

// try makes the call, and makes it again whenever the descriptor is readable, until it gives something or ctx ends.
// Only one goroutine at a time does this: after its call the descriptor no longer tells the others of what the call has
// found.
func (r *readiness) try(ctx context.Context, call func(failure **C.dipc_error) C.dipc_status) error {
	r.mu.Lock()
	r.ahead++
	if r.giveWay != nil {
		r.giveWay()
	}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.ahead--
		r.mu.Unlock()
	}()
	return r.repeat(ctx, call, r.wait)
}

// tryLast is try for a call that may wait for long: it lets goroutines that call try go first.
func (r *readiness) tryLast(ctx context.Context, call func(failure **C.dipc_error) C.dipc_status) error {
	for {
		if err := r.repeat(ctx, call, r.waitLast); err != errWayGiven {
			return err
		}
	}
}

func (r *readiness) repeat(
	ctx context.Context, call func(failure **C.dipc_error) C.dipc_status, wait func(context.Context) error,
) error {
	if ctx == nil {
		return invalid("the context is nil: pass context.Background()")
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
	}
	for {
		if ctx.Err() != nil {
			return contextEnded(ctx, "the wait")
		}
		var failure *C.dipc_error
		if status := call(&failure); status != C.DIPC_NOTHING {
			return check(status, failure)
		}
		if err := wait(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// waitLast is wait until another goroutine wants to make a call.
func (r *readiness) waitLast(ctx context.Context) error {
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	if r.ahead > 0 {
		r.mu.Unlock()
		return errWayGiven
	}
	r.giveWay = cancel
	r.mu.Unlock()
	err := r.wait(wait)
	r.mu.Lock()
	r.giveWay = nil
	r.mu.Unlock()
	if wait.Err() != nil {
		return errWayGiven
	}
	return err
}

func (r *readiness) wait(ctx context.Context) error {
	if r.ready != nil {
		return r.ready.waitUntil(ctx)
	}
	var fd C.int
	var failure *C.dipc_error
	err := check(r.fd(&fd, &failure), failure)
	if err == nil {
		r.ready, err = watch(fd)
	}
	return err
}

// close ends the watching; nobody may be in try.
func (r *readiness) close() { r.ready.close() }
