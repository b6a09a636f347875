package dipc_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	dipc "github.com/libdipc/libdipc/bindings/go"
	"github.com/libdipc/libdipc/bindings/go/internal/cstream"

	"github.com/apache/arrow-go/v18/arrow/array"
)

const onDevice = "DIPC_TEST_ON_DEVICE"

// Memory of an arena on a device is served from there, by a C stream. The test uses the machine's CUDA driver or, if
// there is none, a driver that stands for it without a GPU.
func TestArenaOnDevice(t *testing.T) {
	if os.Getenv(onDevice) != "" {
		arenaOnDevice(t)
		return
	}
	fake := filepath.Join("..", "..", "tests", "fake_cuda", "build.sh")
	if _, err := os.Stat(fake); err != nil {
		t.Skip("skipped: there is no", fake)
	}
	folder := t.TempDir()
	if _, err := dipc.NewArena(dipc.WithArenaDevice(dipc.CUDA(0))); err == nil {
		folder = "" // the machine's own driver
	} else if printed, err := exec.CommandContext(testContext(t), fake, folder).CombinedOutput(); err != nil {
		t.Skipf("skipped: %s cannot be built: %v %s", fake, err, printed)
	}
	run := exec.CommandContext(testContext(t), os.Args[0], "-test.run=^TestArenaOnDevice$", "-test.v")
	run.Env = append(os.Environ(), onDevice+"=1", "LD_LIBRARY_PATH="+folder+":"+os.Getenv("LD_LIBRARY_PATH"))
	if printed, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, printed)
	} else if !strings.Contains(string(printed), "--- PASS") {
		t.Fatalf("nothing ran:\n%s", printed)
	}
}

func arenaOnDevice(t *testing.T) {
	const rows = 100_000
	arena := newArena(t, dipc.WithArenaDevice(dipc.CUDA(0)), dipc.WithArenaMaxBytes(4<<20))
	if arena.Device() != dipc.CUDA(0) || arena.Device().String() != "cuda:0" {
		t.Fatal(arena.Device())
	}
	fails(t, panicOf(func() { arena.Allocate(10) }), dipc.ErrUnsupported, "AllocateOnDevice")
	_, err := arena.AllocateOnDevice(1 << 30)
	fails(t, err, dipc.ErrOutOfMemory, "")
	_, err = arena.AllocateOnDevice(-1)
	fails(t, err, dipc.ErrInvalidArgument, "-1")
	block, err := arena.AllocateOnDevice(8 * rows)
	if err != nil {
		t.Fatal(err)
	}
	if block.Address()%64 != 0 || block.Address() == 0 || block.Len() != 8*rows || block.Device() != dipc.CUDA(0) {
		t.Fatalf("%+v", block)
	}
	values := make([]int64, rows)
	for i := range values {
		values[i] = int64(i) * 3
	}
	if err := cstream.Upload(block.Address(), values); err != nil {
		t.Fatal(err)
	}

	server, uri := newServer(t)
	err = server.ServeStream("on the GPU", func(_ context.Context, ticket string, out unsafe.Pointer) error {
		if ticket != "on the GPU" {
			return dipc.ErrNotFound
		}
		cstream.FillDevice(out, block.Address(), rows)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// arrow-go gets a copy on the host.
	got := get(t, uri, "on the GPU")
	if !got.Next() || !slices.Equal(got.RecordBatch().Column(0).(*array.Int64).Int64Values(), values) {
		t.Fatalf("not what was sent, %v", got.Err())
	}
	if got.Next() || got.Err() != nil {
		t.Fatal("one batch was sent", got.Err())
	}
	got.Release()
	// C gets it where it lies.
	client, err := dipc.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	stream := cstream.New()
	if err := client.GetStream(testContext(t), uri, "on the GPU", stream.Pointer(), dipc.WithDevice(dipc.CUDA(0))); err != nil {
		t.Fatal(err)
	}
	if n := stream.Rows(); stream.DeviceType() != 2 || n != rows {
		t.Fatalf("%d rows on a device of type %d", n, stream.DeviceType())
	}
	stream.Free()
	if stats, err := server.Stats(); err != nil || stats.BytesLent < 8*rows || stats.BytesCopied != 0 {
		t.Fatalf("%+v, %v", stats, err)
	}
	server.Close()
	block.Free()
	block.Free()
	eventually(t, "the block is given back", func() bool {
		stats, err := arena.Stats()
		return err == nil && stats.UsedBytes == 0
	})
}

// Clients get the failures of providers, and an arena on a device gives no blocks of host memory.
func TestServeStreamFails(t *testing.T) {
	server, uri := newServer(t)
	for ticket, provider := range map[string]dipc.StreamProvider{
		"fails":   func(context.Context, string, unsafe.Pointer) error { return dipc.ErrPermission },
		"panics":  func(context.Context, string, unsafe.Pointer) error { panic("not again") },
		"nothing": func(context.Context, string, unsafe.Pointer) error { return nil },
	} {
		if err := server.ServeStream(ticket, provider); err != nil {
			t.Fatal(err)
		}
	}
	_, err := dipc.Get(testContext(t), uri, "fails")
	fails(t, err, dipc.ErrPermission, "")
	_, err = dipc.Get(testContext(t), uri, "panics")
	fails(t, err, dipc.ErrProvider, "not again")
	_, err = dipc.Get(testContext(t), uri, "nothing")
	fails(t, err, dipc.ErrProvider, "neither a stream nor an error")
	fails(t, server.ServeStream("nil", nil), dipc.ErrInvalidArgument, "nil")
	arena := newArena(t)
	_, err = arena.AllocateOnDevice(10)
	fails(t, err, dipc.ErrUnsupported, "lies on the host")
}
