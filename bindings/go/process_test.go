package dipc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow/array"
)

// TestMain runs the tests. In a child process of a test it runs what that test asks for.
func TestMain(m *testing.M) {
	switch os.Getenv("DIPC_TEST_CHILD") {
	case "":
		os.Exit(m.Run())
	case "serve":
		if err := serveUntilEndOfInput(os.Getenv("DIPC_TEST_ADDRESS")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "requests":
		if err := serveRequests(os.Getenv("DIPC_TEST_ADDRESS")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "gate":
		if err := serveGated(os.Getenv("DIPC_TEST_ADDRESS")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "decide":
		if err := serveDecided(os.Getenv("DIPC_TEST_ADDRESS")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "take":
		if err := serveTaking(os.Getenv("DIPC_TEST_ADDRESS")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "version":
		_, server := dipc.NewServer()
		_, client := dipc.NewClient()
		_, arena := dipc.NewArena()
		_, get := dipc.Get(context.Background(), "shm:@nobody", "t")
		for _, err := range []error{server, client, arena, get, dipc.TransportAvailable("shm"), dipc.SetLogger(nil, 0)} {
			fmt.Println(errors.Is(err, dipc.ErrUnsupported), err)
		}
	}
}

func serveUntilEndOfInput(address string) error {
	server, err := dipc.NewServer(dipc.WithTrustedNetwork())
	if err != nil {
		return err
	}
	defer server.Close()
	if err := server.Serve("endless", provide(func() array.RecordReader { return endless() })); err != nil {
		return err
	}
	uri, err := server.Listen(address)
	if err != nil {
		return err
	}
	fmt.Println(uri)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func child(t *testing.T, what string, environment ...string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(testContext(t), os.Args[0])
	command.Env = append(append(os.Environ(), "DIPC_TEST_CHILD="+what), environment...)
	command.Stderr = os.Stderr
	return command
}

// A server that is killed in the middle ends the stream with a status and a text; batches that the
// client holds stay valid.
func TestServerIsKilled(t *testing.T) {
	server := child(t, "serve", "DIPC_TEST_ADDRESS="+address(t))
	input, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	output, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	uri, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	got := get(t, strings.TrimSpace(uri), "endless")
	if !got.Next() {
		t.Fatal(got.Err())
	}
	kept := got.RecordBatch()
	kept.Retain()
	defer kept.Release()
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait() // it was killed
	for got.Next() {
	}
	fails(t, got.Err(), dipc.ErrDisconnected, "")
	if err := checkNumbers(kept, 0, 10); err != nil {
		t.Fatal(err)
	}
}

// A library of another version is an error of every call that would make something, and the text
// names both versions and the file.
func TestLibraryOfAnotherVersion(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("there is no cc to build another library with")
	}
	folder := t.TempDir()
	source, library := filepath.Join(folder, "other.c"), filepath.Join(folder, "libother.so")
	const text = `unsigned dipc_version(void) { return 9008007; }
const char *dipc_version_string(void) { return "9.8.7"; }
`
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	output, err := child(t, "version", "LD_PRELOAD="+library).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	if len(lines) != 6 {
		t.Fatalf("%q", lines)
	}
	for _, line := range lines {
		for _, words := range []string{"true", "built for libdipc 0.1", "loaded libdipc 9.8.7", library} {
			if !strings.Contains(line, words) {
				t.Errorf("%q does not say %q", line, words)
			}
		}
	}
}

// A program that does not find the library fails before it begins, and names the library.
func TestLibraryIsNotFound(t *testing.T) {
	command := child(t, "version", "LD_LIBRARY_PATH=/nowhere")
	command.Stderr = nil
	output, err := command.CombinedOutput()
	if err == nil {
		t.Skip("the library lies where the loader looks by itself")
	}
	if !strings.Contains(string(output), "libdipc.so") {
		t.Fatalf("%s does not name the library", output)
	}
}

func TestVersionAndTransports(t *testing.T) {
	if dipc.Version() != "0.1.0" {
		t.Errorf("version %q", dipc.Version())
	}
	if err := dipc.TransportAvailable("shm"); err != nil {
		t.Error(err)
	}
	fails(t, dipc.TransportAvailable("pigeon"), dipc.ErrUnsupported, "pigeon")
	fails(t, dipc.TransportAvailable("a\x00"), dipc.ErrInvalidArgument, "NUL")
	if text := dipc.ErrNotFound.Error(); text != "dipc: not found" || dipc.ErrNotFound.Name() != "DIPC_ERR_NOT_FOUND" {
		t.Errorf("%q, %q", text, dipc.ErrNotFound.Name())
	}
}

// The library's log events go to the program's logger until the log is stopped; a logger that panics does no harm.
func TestLog(t *testing.T) {
	records := make(chan slog.Record, 10_000)
	if err := dipc.SetLogger(slog.New(capture{records}), dipc.LevelTrace); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := dipc.SetLogger(nil, 0); err != nil {
			t.Error(err)
		}
	}()
	server, uri := newServer(t)
	if err := server.Serve("noise", provide(func() array.RecordReader { panic("noise") })); err != nil {
		t.Fatal(err)
	}
	makeNoise := func() {
		_, err := dipc.Get(testContext(t), uri, "noise")
		fails(t, err, dipc.ErrProvider, "noise")
	}
	makeNoise()
	eventually(t, "the library logs", func() bool {
		for {
			select {
			case record := <-records:
				target := ""
				record.Attrs(func(a slog.Attr) bool { target = a.Value.String(); return true })
				if strings.HasPrefix(target, "dipc") && record.Message != "" {
					return true
				}
			default:
				return false
			}
		}
	})

	var panics atomic.Int32
	if err := dipc.SetLogger(slog.New(explode{&panics}), dipc.LevelTrace); err != nil {
		t.Fatal(err)
	}
	makeNoise()
	eventually(t, "the logger panics", func() bool { return panics.Load() > 0 })
}

type capture struct{ records chan slog.Record }

func (capture) Enabled(context.Context, slog.Level) bool { return true }
func (c capture) WithAttrs([]slog.Attr) slog.Handler     { return c }
func (c capture) WithGroup(string) slog.Handler          { return c }
func (c capture) Handle(_ context.Context, record slog.Record) error {
	select {
	case c.records <- record:
	default:
	}
	return nil
}

type explode struct{ panics *atomic.Int32 }

func (explode) Enabled(context.Context, slog.Level) bool { return true }
func (e explode) WithAttrs([]slog.Attr) slog.Handler     { return e }
func (e explode) WithGroup(string) slog.Handler          { return e }
func (e explode) Handle(context.Context, slog.Record) error {
	e.panics.Add(1)
	panic("a logger that is broken")
}
