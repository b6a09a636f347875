package dipc

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// WithArenaDevice has the arena's memory on a device: [CUDA]. Go cannot read that memory, so the arena is no allocator
// for arrow-go: [Arena.AllocateOnDevice] gives its blocks. Default [Host].
func WithArenaDevice(device Device) ArenaOption {
	return ArenaOption{device: &device}
}

// Device is where the arena's memory lies.
func (a *Arena) Device() Device { return a.device }

// onHost panics where Go cannot reach the arena's memory.
func (a *Arena) onHost() {
	if a.device.deviceType != C.ARROW_DEVICE_CPU {
		panic(&Error{Status: ErrUnsupported, Text: "the arena lies on a device, which Go cannot look into: " +
			"AllocateOnDevice gives its blocks"})
	}
}

// AllocateOnDevice gives size bytes of an arena on a device, aligned to 64; what they hold is not
// defined. It fails with [ErrOutOfMemory] if memory or the arena's limit is exhausted, and with
// [ErrUnsupported] for an arena of the host.
func (a *Arena) AllocateOnDevice(size int) (*DeviceBlock, error) {
	if size < 0 {
		return nil, invalid("a block cannot have %d bytes", size)
	}
	object, err := a.handle.use()
	if err != nil {
		return nil, err
	}
	defer a.handle.done()
	if a.device.deviceType == C.ARROW_DEVICE_CPU {
		return nil, &Error{Status: ErrUnsupported, Text: "the arena lies on the host: Allocate gives its blocks"}
	}
	var address unsafe.Pointer
	var failure *C.dipc_error
	if err := check(C.dipc_arena_alloc(object, C.size_t(size), &address, &failure), failure); err != nil {
		return nil, err
	}
	b := &DeviceBlock{memory: &deviceMemory{address: address}, device: a.device, size: size}
	runtime.AddCleanup(b, (*deviceMemory).free, b.memory)
	return b, nil
}

// DeviceBlock is a block of an [Arena] on a device. Keep it reachable while the device uses it: one that is
// collected is freed.
type DeviceBlock struct {
	memory *deviceMemory
	device Device
	size   int
}

// deviceMemory is what must be given back. It refers to no object of Go.
type deviceMemory struct {
	address unsafe.Pointer
	freed   atomic.Bool
}

func (m *deviceMemory) free() {
	if !m.freed.Swap(true) {
		// The block is in use, so this cannot fail. NULL instead of the arena lets the library find it, even if it is closed.
		C.dipc_arena_dealloc(nil, m.address, nil)
	}
}

// Address is where the block begins, for the device and for C: Go must not read or write there.
func (b *DeviceBlock) Address() uintptr { return uintptr(b.memory.address) }

// Len is the size of the block in bytes.
func (b *DeviceBlock) Len() int { return b.size }

// Device is where the block lies.
func (b *DeviceBlock) Device() Device { return b.device }

// Free gives the block back, once the device's work on it is done. Memory that a client may still read is
// not used again before the client has given it back too. It may be called again.
func (b *DeviceBlock) Free() { b.memory.free() }

// String names a device: "host", "as sent" or "cuda:0".
func (d Device) String() string {
	switch d.deviceType {
	case C.ARROW_DEVICE_CPU:
		return "host"
	case C.DIPC_DEVICE_AS_SENT:
		return "as sent"
	default:
		return fmt.Sprintf("cuda:%d", d.id)
	}
}

// StreamProvider opens the table that a client asks for as a C stream, which some other library makes. It fills out, an
// empty (released) C struct ArrowDeviceArrayStream; the stream's arrays may lie on a device. The server takes the
// stream over, and reads and releases it on threads of its own. In all else it is called, and fails, like a [Provider],
// but its context ends when it returns.
type StreamProvider func(ctx context.Context, ticket string, out unsafe.Pointer) error

// ServeStream serves ticket, which may be any bytes, by C streams. It is for tables that arrow-go cannot hold, such as
// those on a GPU.
func (s *Server) ServeStream(ticket string, provider StreamProvider, options ...ServeOption) error {
	if provider == nil {
		return invalid("the provider of ticket %q is nil", ticket)
	}
	return s.serve(ticket, &streamService{provider: provider, ticket: ticket}, options)
}

// streamService is a provider of C streams and the ticket it is served under.
type streamService struct {
	provider StreamProvider
	ticket   string
}

func (s *streamService) answer(p *producer, out *C.struct_ArrowDeviceArrayStream) error {
	if err := s.provider(p.request, s.ticket, unsafe.Pointer(out)); err != nil {
		return err
	}
	if out.release == nil {
		return errors.New("the provider gave neither a stream nor an error")
	}
	return nil
}
