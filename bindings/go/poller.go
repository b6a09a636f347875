package dipc

// #include "shim.h"
import "C"

import (
	"errors"
	"os"
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
	// The runtime tells of changes alone, so the first look is at what is there already.
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

func (w *watched) isReadable() bool { return bool(C.dipcgo_fd_readable(w.fd)) }

// endAt ends waits at a time; never where it is zero.
func (w *watched) endAt(at time.Time) {
	// It fails where the runtime does not watch, and then wait does so too.
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
