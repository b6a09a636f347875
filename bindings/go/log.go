package dipc

// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/cgo"
	"sync/atomic"
)

// LevelTrace is the level of events about single messages; the other levels are slog's.
const LevelTrace = slog.LevelDebug - 4

// logger is what SetLogger was given last.
var logger atomic.Pointer[slog.Logger]

// SetLogger sends the library's log events of at least this level to the logger to, on a thread of the log. The library
// logs nothing until this is called; nil stops the log.
func SetLogger(to *slog.Logger, level slog.Level) error {
	if libraryError != nil {
		return libraryError
	}
	var failure *C.dipc_error
	if to == nil {
		logger.Store(nil)
		return check(C.dipcgo_log_set(C.DIPC_LOG_ERROR, 0, &failure), failure)
	}
	kept := cgo.NewHandle(to)
	if err := check(C.dipcgo_log_set(libraryLevel(level), C.uintptr_t(kept), &failure), failure); err != nil {
		kept.Delete()
		return err
	}
	logger.Store(to)
	return nil
}

func libraryLevel(level slog.Level) C.int32_t {
	switch {
	case level >= slog.LevelError:
		return C.DIPC_LOG_ERROR
	case level >= slog.LevelWarn:
		return C.DIPC_LOG_WARN
	case level >= slog.LevelInfo:
		return C.DIPC_LOG_INFO
	case level >= slog.LevelDebug:
		return C.DIPC_LOG_DEBUG
	default:
		return C.DIPC_LOG_TRACE
	}
}

func goLevel(level C.int32_t) slog.Level {
	switch level {
	case C.DIPC_LOG_ERROR:
		return slog.LevelError
	case C.DIPC_LOG_WARN:
		return slog.LevelWarn
	case C.DIPC_LOG_INFO:
		return slog.LevelInfo
	case C.DIPC_LOG_DEBUG:
		return slog.LevelDebug
	default:
		return LevelTrace
	}
}

//export dipcgoLog
func dipcgoLog(handle C.uintptr_t, level C.int32_t, target, text *C.char) {
	// Nobody can be told of a logger that panics.
	defer func() { _ = recover() }()
	to := cgo.Handle(handle).Value().(*slog.Logger)
	to.Log(context.Background(), goLevel(level), C.GoString(text), "target", C.GoString(target))
}

// shield keeps a panic of the program's code from ending the process if a callback of the library
// cannot report it; the logger is told.
func shield(doing string) {
	reason := recover()
	if reason == nil {
		return
	}
	if to := logger.Load(); to != nil {
		to.Error(fmt.Sprintf("panic while %s: %v", doing, reason), "target", "dipc/go")
	}
}
