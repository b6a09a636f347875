package dipc_test

import (
	"context"
	"errors"
	"testing"

	dipc "github.com/libdipc/libdipc/bindings/go"
	"github.com/libdipc/libdipc/bindings/go/internal/cstream"
)

// With AsSent, arrays that the server has on the host stay there, and no driver is needed to find out. Without a driver
// a GPU cannot be asked for, and the error comes before the server is looked for.
func TestDevices(t *testing.T) {
	server, uri := newServer(t)
	publish(t, server, "table")
	for _, device := range []dipc.Device{dipc.Host, dipc.AsSent} {
		got := get(t, uri, "table", dipc.WithDevice(device))
		for got.Next() {
		}
		stats, err := got.Stats()
		if err != nil || got.Err() != nil || stats.Rows == 0 || stats.BytesStaged+stats.BytesCopiedOnDevice != 0 {
			t.Fatalf("%+v, %v, %v", stats, err, got.Err())
		}
	}
	_, err := dipc.Get(testContext(t), uri, "table", dipc.WithDevice(dipc.CUDA(-1)))
	fails(t, err, dipc.ErrInvalidArgument, "-1")
	_, err = dipc.Get(testContext(t), "shm:/nobody/listens/here", "table", dipc.WithDevice(dipc.CUDA(0)))
	if errors.Is(err, dipc.ErrUnreachable) {
		t.Skip("this machine has a CUDA driver")
	}
	fails(t, err, dipc.ErrUnsupported, "libcuda.so.1")
}

// GetStream gives a stream that C reads, which outlives the call's context; on failure nothing.
func TestGetStream(t *testing.T) {
	server, uri := newServer(t)
	publish(t, server, "table")
	client, err := dipc.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	stream := cstream.New()
	defer stream.Free()
	err = client.GetStream(testContext(t), uri, "nothing", stream.Pointer())
	fails(t, err, dipc.ErrNotFound, "nothing")
	fails(t, client.GetStream(testContext(t), uri, "table", nil), dipc.ErrInvalidArgument, "nil")
	if !stream.IsEmpty() {
		t.Fatal("a failed call wrote a stream")
	}
	ctx, cancel := context.WithCancel(testContext(t))
	if err := client.GetStream(ctx, uri, "table", stream.Pointer(), dipc.WithDevice(dipc.AsSent)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if rows := stream.Rows(); stream.DeviceType() != 1 || rows <= 0 {
		t.Fatalf("%d rows on a device of type %d", rows, stream.DeviceType())
	}
}
