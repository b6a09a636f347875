package dipc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// decide allows the process's own user; tickets such as "secret" are refused in various ways.
func decide(ctx context.Context, verb dipc.Verb, ticket string) error {
	select {
	case <-ctx.Done():
		return errors.New("the client has gone")
	default:
	}
	if dipc.RequestPrincipal(ctx) != "" {
		return errors.New("the client has a name")
	}
	switch {
	case verb == dipc.VerbGet && strings.HasPrefix(ticket, "secret"):
		return &dipc.Error{Status: dipc.ErrNotFound, Text: "not for you"}
	case ticket == "fails":
		return errors.New("out of paper")
	case ticket == "busy":
		return fmt.Errorf("come again: %w", dipc.ErrBusy)
	case ticket == "panics":
		panic("paper on fire")
	}
	if peer := dipc.RequestPeer(ctx); peer.Process != nil && peer.Process.UID != os.Getuid() {
		return errors.New("another user")
	}
	if user := dipc.RequestHeaders(ctx).Get("user"); user != "" {
		return dipc.SetPrincipal(ctx, user)
	}
	return nil
}

// serveDecided serves what decide allows, until the end of input.
func serveDecided(address string) error {
	server, err := dipc.NewServer(dipc.WithTrustedNetwork(), dipc.WithAuthorizer(decide))
	if err != nil {
		return err
	}
	defer server.Close()
	// As many rows as the client's name is long.
	say := func(ctx context.Context, _ string) (array.RecordReader, error) {
		if err := dipc.SetPrincipal(ctx, "mallory"); err == nil {
			return nil, errors.New("a provider has named the client")
		}
		batch := numbers(memory.DefaultAllocator, 0, len(dipc.RequestPrincipal(ctx)))
		return array.NewRecordReader(numbersSchema, []arrow.RecordBatch{batch})
	}
	for _, ticket := range []string{"table", "secret plans", "fails", "busy", "panics"} {
		if err := server.Serve(ticket, say); err != nil {
			return err
		}
	}
	uri, err := server.Listen(address)
	if err != nil {
		return err
	}
	fmt.Println(uri)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// startDecided runs serveDecided in a process of its own, and gives its URI and what ends it.
func startDecided(t *testing.T) (uri string, end func()) {
	server := child(t, "decide", "DIPC_TEST_ADDRESS="+address(t))
	input, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	uri, err = bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(uri), func() {
		input.Close()
		if err := server.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// Each request is decided, with a name for the client that handlers see; a refusal has the status and the
// text of the authorizer's error, or says that it panicked.
func TestAuthorizer(t *testing.T) {
	uri, end := startDecided(t)
	defer end()
	rows := func(ticket string, options ...dipc.GetOption) (rows int64, err error) {
		// No deadline: with one, the client would ask a busy server again until then.
		reader, err := dipc.Get(context.Background(), uri, ticket, options...)
		if err != nil {
			return 0, err
		}
		defer reader.Release()
		for reader.Next() {
			rows += reader.RecordBatch().NumRows()
		}
		return rows, reader.Err()
	}
	for range 2 {
		if n, err := rows("table", dipc.WithHeaders(dipc.Headers{"user": {"alice"}})); n != 5 || err != nil {
			t.Fatalf("%d rows, %v", n, err)
		}
		if n, err := rows("table"); n != 0 || err != nil {
			t.Fatalf("%d rows, %v", n, err)
		}
		for _, refused := range []struct {
			ticket, words string
			status        dipc.Status
		}{
			{"secret plans", "not for you", dipc.ErrNotFound},
			{"fails", "out of paper", dipc.ErrPermission},
			{"panics", "the authorizer panicked: paper on fire", dipc.ErrPermission},
			{"busy", "come again", dipc.ErrBusy},
		} {
			_, err := rows(refused.ticket)
			fails(t, err, refused.status, refused.words)
			var failure *dipc.Error
			if errors.As(err, &failure); (failure.RetryAfter > 0) != (refused.status == dipc.ErrBusy) {
				t.Errorf("%v: try again after %s", err, failure.RetryAfter)
			}
		}
	}
	shown, err := dipc.List(testContext(t), uri, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(shown.Endpoints) != 1 || shown.Endpoints[0].Ticket != "table" {
		t.Errorf("%+v is shown", shown.Endpoints)
	}
}

// A request of the pull form has the client's name, too.
func TestPrincipalInThePullForm(t *testing.T) {
	server, uri := newServer(t, dipc.WithAuthorizer(decide))
	if err := server.ServePull("pulled"); err != nil {
		t.Fatal(err)
	}
	failure := make(chan error, 1)
	go func() {
		reader, err := dipc.Get(testContext(t), uri, "pulled", dipc.WithHeaders(dipc.Headers{"user": {"alice"}}))
		if err == nil {
			reader.Release()
		}
		failure <- err
	}()
	request, err := server.NextRequest(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if request.Principal != "alice" {
		t.Errorf("the client is %q", request.Principal)
	}
	if err := request.Start(numbersSchema); err != nil {
		t.Fatal(err)
	}
	if err := request.Finish(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-failure; err != nil {
		t.Fatal(err)
	}
	fails(t, dipc.SetPrincipal(t.Context(), "alice"), dipc.ErrInvalidArgument, "context of an authorizer")
	if name := dipc.RequestPrincipal(t.Context()); name != "" {
		t.Errorf("a context of nobody's has the name %q", name)
	}
}

// ownAddress is an address of this machine that is not loopback. Clients that come by it have the bounds of another
// machine; those of loopback have none.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if ip, ok := address.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
			return ip.IP.String()
		}
	}
	t.Skip("this machine has no address but loopback")
	return ""
}

// Past each bound the next client is refused, and told when to ask again.
func TestBounds(t *testing.T) {
	for limit, options := range map[string][]dipc.ServerOption{
		"max_streams":              {dipc.WithMaxStreams(1), dipc.WithCreditTimeout(dipc.Forever)},
		"max_connections":          {dipc.WithMaxConnections(1)},
		"max_streams_per_peer":     {dipc.WithMaxStreamsPerPeer(1)},
		"max_connections_per_peer": {dipc.WithMaxConnectionsPerPeer(1)},
	} {
		t.Run(limit, func(t *testing.T) {
			at := "127.0.0.1"
			if strings.HasSuffix(limit, "per_peer") {
				at = ownAddress(t)
			}
			server, err := dipc.NewServer(append(options, dipc.WithRemoteClients())...)
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			uri, err := server.Listen("tcp://" + at + ":0")
			if err != nil {
				t.Fatal(err)
			}
			if err := server.Serve("endless", provide(func() array.RecordReader { return endless() })); err != nil {
				t.Fatal(err)
			}
			get(t, uri, "endless")
			client, err := dipc.NewClient()
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			// No deadline: with one, the call would ask again until then.
			_, err = client.Get(context.Background(), uri, "endless")
			fails(t, err, dipc.ErrBusy, limit+" allows")
			var failure *dipc.Error
			if errors.As(err, &failure); failure.RetryAfter <= 0 || failure.RetryAfter > patience {
				t.Errorf("try again after %s", failure.RetryAfter)
			}
		})
	}
}

// A limit that would shut out everybody is refused.
func TestLimitsThatAreNone(t *testing.T) {
	made := func(option dipc.ServerOption) error {
		server, err := dipc.NewServer(option)
		if err == nil {
			server.Close()
		}
		return err
	}
	for _, with := range []func(int) dipc.ServerOption{
		dipc.WithMaxConnections, dipc.WithMaxConnectionsPerPeer, dipc.WithMaxStreamsPerPeer,
	} {
		fails(t, made(with(0)), dipc.ErrInvalidArgument, "at least one")
		if err := made(with(1)); err != nil {
			t.Error(err)
		}
	}
	for limit, with := range map[string]func(time.Duration) dipc.ServerOption{
		"credit": dipc.WithCreditTimeout, "handshake": dipc.WithHandshakeTimeout,
		"request": dipc.WithRequestTimeout, "idle": dipc.WithClientIdleTimeout,
	} {
		fails(t, made(with(0)), dipc.ErrInvalidArgument, limit+" timeout is 0")
		fails(t, made(with(-1)), dipc.ErrInvalidArgument, "negative")
		if err := made(with(dipc.Forever)); err != nil {
			t.Error(err)
		}
	}
	if err := made(dipc.WithMaxRequestBytes(0)); err != nil {
		t.Error(err)
	}
	fails(t, made(dipc.WithAuthorizer(nil)), dipc.ErrInvalidArgument, "nil")
}
