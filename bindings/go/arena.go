package dipc

// #include "shim.h"
import "C"

import (
	"runtime"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Arena is a [memory.Allocator] whose memory is lent to clients on the same machine where it lies:
// batches built with it are served without a copy. Its methods may be called by any goroutine.
//
// A client that was lent one block can read the whole region that it lies in: an arena is as public
// as the most public ticket whose batches lie in it.
type Arena struct {
	handle *handle[*C.dipc_arena]
	device Device
}

var _ memory.Allocator = (*Arena)(nil)

// NewArena makes an arena in the host's memory, or on the device of [WithArenaDevice]. It takes memory from
// the system with the first block, one region at a time.
func NewArena(options ...ArenaOption) (*Arena, error) {
	if libraryError != nil {
		return nil, libraryError
	}
	var failure *C.dipc_error
	var set *C.dipc_arena_options
	if err := check(C.dipc_arena_options_new(&set, &failure), failure); err != nil {
		return nil, err
	}
	defer C.dipc_arena_options_free(set)
	device := Host
	for _, option := range options {
		if option.device != nil {
			device = *option.device
		}
		if option.set == nil {
			continue
		}
		if err := option.set(set); err != nil {
			return nil, err
		}
	}
	var object *C.dipc_arena
	failure = nil
	if err := check(C.dipc_arena_new(device.deviceType, device.id, set, &object, &failure), failure); err != nil {
		return nil, err
	}
	own := newHandle("arena", object, func(object *C.dipc_arena) { C.dipc_arena_free(object) })
	a := &Arena{handle: own, device: device}
	runtime.AddCleanup(a, func(h *handle[*C.dipc_arena]) { h.close(nil) }, a.handle)
	return a, nil
}

// Allocate gives size bytes, all zero, aligned to 64. An allocator of arrow-go cannot return an error, so it panics
// with an [*Error] if memory or the arena's limit is exhausted ([ErrOutOfMemory]) and if the arena is closed
// ([ErrClosed]). In a [Provider] such a panic ends only its own stream.
func (a *Arena) Allocate(size int) []byte {
	if size < 0 {
		panic(invalid("a block cannot have %d bytes", size))
	}
	if size == 0 {
		return []byte{}
	}
	object, err := a.handle.use()
	if err != nil {
		panic(err)
	}
	defer a.handle.done()
	a.onHost()
	var block unsafe.Pointer
	var failure *C.dipc_error
	if err := check(C.dipc_arena_alloc(object, C.size_t(size), &block, &failure), failure); err != nil {
		panic(err)
	}
	bytes := unsafe.Slice((*byte)(block), size)
	// Blocks are used again, and builders take fresh memory to be zero.
	clear(bytes)
	return bytes
}

// Reallocate gives size bytes that begin with those of old, which it frees unless it gives the same
// block.
func (a *Arena) Reallocate(size int, old []byte) []byte {
	if size < 0 {
		panic(invalid("a block cannot have %d bytes", size))
	}
	if size <= cap(old) && cap(old) > 0 {
		grown := old[:size]
		if size > len(old) {
			clear(grown[len(old):])
		}
		return grown
	}
	bytes := a.Allocate(size)
	copy(bytes, old)
	a.Free(old)
	return bytes
}

// Free gives a block back. Memory that a client may still read is not used again before the client has given it back
// too. Blocks may be freed after Close. It panics with an [*Error] if no block of an arena begins at bytes, or if the
// block was freed before.
func (a *Arena) Free(bytes []byte) {
	if cap(bytes) == 0 {
		return
	}
	var failure *C.dipc_error
	// NULL instead of the arena lets the library find it, even if it is closed.
	if err := check(C.dipc_arena_dealloc(nil, pointer(bytes), &failure), failure); err != nil {
		panic(err)
	}
}

// Close closes the arena. Its memory lives until the last block is given back. It may be called
// again, and always returns nil.
func (a *Arena) Close() error {
	a.handle.close(nil)
	return nil
}

// ArenaStats are the figures of an arena.
type ArenaStats struct {
	UsedBytes   uint64 // of blocks in use
	MappedBytes uint64 // of all regions, taken from the system
}

// Stats gives the arena's figures now.
func (a *Arena) Stats() (ArenaStats, error) {
	var stats ArenaStats
	object, err := a.handle.use()
	if err != nil {
		return stats, err
	}
	defer a.handle.done()
	var failure *C.dipc_error
	status := readStats(&failure, func(stat C.int32_t, out *C.uint64_t, failure **C.dipc_error) C.dipc_status {
		return C.dipc_arena_stat(object, stat, out, failure)
	}, map[C.int32_t]*uint64{
		C.DIPC_ARENA_STAT_USED_BYTES:   &stats.UsedBytes,
		C.DIPC_ARENA_STAT_MAPPED_BYTES: &stats.MappedBytes,
	})
	return stats, check(status, failure)
}

// ArenaOption changes what NewArena makes.
type ArenaOption struct {
	set    func(*C.dipc_arena_options) error
	device *Device
}

// WithArenaRegionBytes sets the size of one region; a larger block gets one of its own. A client maps
// whole regions. Default 64 MiB.
func WithArenaRegionBytes(bytes uint64) ArenaOption {
	return ArenaOption{set: func(o *C.dipc_arena_options) error {
		var failure *C.dipc_error
		return check(C.dipc_arena_options_set_region_bytes(o, C.uint64_t(bytes), &failure), failure)
	}}
}

// WithArenaMaxBytes bounds all regions of the arena together. Default no bound.
func WithArenaMaxBytes(bytes uint64) ArenaOption {
	return ArenaOption{set: func(o *C.dipc_arena_options) error {
		var failure *C.dipc_error
		return check(C.dipc_arena_options_set_max_bytes(o, C.uint64_t(bytes), &failure), failure)
	}}
}
