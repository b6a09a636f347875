package dipc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dipc "github.com/libdipc/libdipc/bindings/go"
	"github.com/libdipc/libdipc/bindings/go/internal/cstream"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// parts is what a handler and a provider are described by.
var parts = dipc.Description{
	Schema:  numbersSchema,
	Rows:    dipc.Known(10),
	Batches: dipc.Known(3),
	Endpoints: []dipc.Endpoint{
		{Ticket: "near\x00\xff", Rows: dipc.Known(4)},
		{Ticket: "far", URIs: []string{"shm:@there", "tcp://there:1"}, Rows: dipc.Known(0), Bytes: dipc.Known(100)},
	},
}

// serveRequests serves, in a process of its own, what the tests ask for. It prints a URI of each
// transport.
func serveRequests(address string) error {
	server, err := dipc.NewServer()
	if err != nil {
		return err
	}
	defer server.Close()
	batch := numbers(memory.DefaultAllocator, 0, 10)
	defer batch.Release()
	if err := server.Publish("table", numbersSchema, batch); err != nil {
		return err
	}
	if err := server.Publish("changing", numbersSchema, slices.Repeat([]arrow.RecordBatch{batch}, 500)...); err != nil {
		return err
	}
	if err := server.Serve("provided", provide(func() array.RecordReader { return endless() })); err != nil {
		return err
	}
	if err := server.SetDescription("provided", &parts); err != nil {
		return err
	}
	err = server.SetHandler(&dipc.Handler{
		Get: func(ctx context.Context, ticket string) (array.RecordReader, error) {
			return answer(ctx, server, ticket)
		},
		Describe: func(ctx context.Context, ticket string) (*dipc.Description, error) {
			if ticket == "unknown" {
				return nil, dipc.ErrNotFound
			}
			return &parts, dipc.AddHeaders(ctx, dipc.Headers{"described": {ticket}})
		},
		List: func(ctx context.Context, prefix string) ([]dipc.Endpoint, error) {
			return parts.Endpoints, dipc.AddHeaders(ctx, dipc.Headers{"listed": {prefix}})
		},
	})
	if err != nil {
		return err
	}
	for _, address := range []string{address, "tcp://127.0.0.1:0"} {
		uri, err := server.Listen(address)
		if err != nil {
			return err
		}
		fmt.Println(uri)
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// answer answers with the headers of the request, and what else it was asked.
func answer(ctx context.Context, server *dipc.Server, ticket string) (array.RecordReader, error) {
	// Made from the provider's context, as a program's own would be.
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	left := "for ever"
	if deadline, ok := inner.Deadline(); ok {
		left = strconv.FormatBool(time.Until(deadline) > time.Second && time.Until(deadline) <= patience)
	}
	for _, headers := range []dipc.Headers{dipc.RequestHeaders(inner), {"ticket": {ticket}, "left": {left}}, nil} {
		if err := dipc.AddHeaders(inner, headers); err != nil {
			return nil, err
		}
	}
	batch := numbers(memory.DefaultAllocator, 0, 10)
	defer batch.Release()
	rows := 0
	switch {
	case ticket == "unknown":
		return nil, fmt.Errorf("there is no %q: %w", ticket, dipc.ErrNotFound)
	case ticket == "slow":
		<-inner.Done()
		return nil, inner.Err()
	case ticket == "late":
		return &reader{schema: numbersSchema, next: func() (arrow.RecordBatch, error) {
			if rows += 10; rows == 10 {
				return numbers(memory.DefaultAllocator, 0, 10), nil
			}
			return nil, errors.Join(dipc.AddHeaders(ctx, dipc.Headers{"reason": {"late"}}), dipc.ErrBusy)
		}}, nil
	case strings.HasPrefix(ticket, "change to "):
		if err := server.Replace("changing", numbersSchema, slices.Repeat([]arrow.RecordBatch{batch}, len(ticket))...); err != nil {
			return nil, err
		}
	}
	return array.NewRecordReader(numbersSchema, []arrow.RecordBatch{batch})
}

// overBoth runs a test over shm and tcp, with a server in a process of its own.
func overBoth(t *testing.T, test func(t *testing.T, uri string)) {
	server := child(t, "requests", "DIPC_TEST_ADDRESS=shm:"+t.TempDir()+"/socket")
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
	uris := bufio.NewReader(output)
	for _, transport := range []string{"shm", "tcp"} {
		uri, err := uris.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		t.Run(transport, func(t *testing.T) { test(t, strings.TrimSpace(uri)) })
	}
	input.Close()
	if err := server.Wait(); err != nil {
		t.Errorf("the server does not end well: %v", err)
	}
}

func headersOf(t *testing.T, reader *dipc.Reader) dipc.Headers {
	t.Helper()
	headers, err := reader.Headers()
	if err != nil {
		t.Fatal(err)
	}
	return headers
}

// Headers of any bytes go with a request, and come back with its answer and with its failure.
func TestHeadersCross(t *testing.T) {
	overBoth(t, func(t *testing.T, uri string) {
		headers := dipc.Headers{"binary": {"\x00\xff\n", ""}, "traceparent": {"00-0af7-b7ad-01"}}
		headers.Add("twice", "2")
		headers.Add("twice", "1")
		wanted := dipc.Headers{"ticket": {"any\x00query"}, "left": {"true"}}
		for key, values := range headers {
			wanted[key] = values
		}
		got := get(t, uri, "any\x00query", dipc.WithHeaders(dipc.Headers{"of": {"before"}}), dipc.WithHeaders(headers))
		if answer := headersOf(t, got); !reflect.DeepEqual(answer, wanted) {
			t.Fatalf("%q and not %q", answer, wanted)
		}
		if rows := count(t, got); rows != 10 {
			t.Fatalf("%d rows", rows)
		}
		if answer := headersOf(t, got); answer.Get("twice") != "2" || answer.Get("absent") != "" {
			t.Fatalf("%q", answer)
		}
		got.Release()
		_, err := got.Headers()
		fails(t, err, dipc.ErrStopped, "closed")

		// A ticket with its own provider has no headers here, and the handler is not asked for it.
		if answer := headersOf(t, get(t, uri, "table", dipc.WithHeaders(headers))); answer != nil {
			t.Fatalf("%q", answer)
		}
		late := get(t, uri, "late")
		if !late.Next() || late.Next() {
			t.Fatal("the handler gives one batch and fails")
		}
		fails(t, late.Err(), dipc.ErrBusy, "busy")
		if answer := headersOf(t, late); answer.Get("reason") != "late" || answer.Get("ticket") != "late" {
			t.Fatalf("%q", answer)
		}
	})
}

// A header for secrets is sent where others may read it only if the program says so.
func TestSecrets(t *testing.T) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(addresses, func(address net.Addr) bool {
		network, ok := address.(*net.IPNet)
		return ok && network.IP.To4() != nil && !network.IP.IsLoopback()
	})
	if at < 0 {
		t.Skip("this machine has the loopback interface alone")
	}
	server, _ := newServer(t, dipc.WithRemoteClients())
	public, err := server.Listen("tcp://" + addresses[at].(*net.IPNet).IP.String() + ":0")
	if err != nil {
		t.Fatal(err)
	}
	private, err := server.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	publish(t, server, "table")
	secret := dipc.WithHeaders(dipc.Headers{"authorization": {"Bearer of bad news"}})
	count(t, get(t, private, "table", secret))
	_, err = dipc.Get(testContext(t), public, "table", secret)
	fails(t, err, dipc.ErrPermission, "send_secrets")
	count(t, get(t, public, "table", secret, dipc.WithSendSecrets()))
	count(t, get(t, public, "table", dipc.WithChecksums()))
}

// The context's deadline is the request's: the server is told, and both sides end with it.
func TestDeadlineCrosses(t *testing.T) {
	overBoth(t, func(t *testing.T, uri string) {
		reader, err := dipc.Get(context.Background(), uri, "query")
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Release()
		if answer := headersOf(t, reader); answer.Get("left") != "for ever" {
			t.Fatalf("%q", answer)
		}
		tired := errors.New("tired")
		ctx, cancel := context.WithTimeoutCause(testContext(t), 100*time.Millisecond, tired)
		defer cancel()
		_, err = dipc.Get(ctx, uri, "slow", dipc.WithDeadline(time.Now().Add(time.Hour)))
		fails(t, err, dipc.ErrTimeout, "tired")
		for _, wanted := range []error{context.DeadlineExceeded, dipc.ErrCancelled, tired} {
			if !errors.Is(err, wanted) {
				t.Errorf("%v is not %v", err, wanted)
			}
		}

		// Of two deadlines the earlier one counts.
		for _, left := range []time.Duration{-time.Hour, 100 * time.Millisecond} {
			_, err = dipc.Get(testContext(t), uri, "slow", dipc.WithDeadline(time.Now().Add(left)))
			fails(t, err, dipc.ErrTimeout, "")
			if errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v is not the context's", err)
			}
		}
		stream := cstream.New()
		defer stream.Free()
		client, err := dipc.NewClient()
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if err := client.GetStream(testContext(t), uri, "provided", stream.Pointer(), dipc.WithDeadline(time.Now().Add(100*time.Millisecond))); err != nil {
			fails(t, err, dipc.ErrTimeout, "") // on a machine that is very slow
		} else if rows := stream.Rows(); rows != -1 {
			t.Errorf("a stream without an end has %d rows", rows)
		}
	})
}

// A new table replaces the table of a ticket, and a stream of the old one goes on.
func TestReplaceUnderAStream(t *testing.T) {
	overBoth(t, func(t *testing.T, uri string) {
		whole := count(t, get(t, uri, "changing"))
		old := get(t, uri, "changing", dipc.WithWindow(1, math.MaxUint64))
		if !old.Next() {
			t.Fatal(old.Err())
		}
		change := "change to " + strings.Repeat("x", len(uri))
		count(t, get(t, uri, change))
		if rows := count(t, get(t, uri, "changing")); rows != int64(10*len(change)) {
			t.Fatalf("%d rows of the new table", rows)
		}
		if rows := 10 + count(t, old); rows != whole {
			t.Fatalf("%d rows of %d of the old table", rows, whole)
		}
	})
}

// Tickets are described without their tables: those of the server's own, and the handler's.
func TestDescribe(t *testing.T) {
	overBoth(t, func(t *testing.T, uri string) {
		ctx := testContext(t)
		table, err := dipc.Describe(ctx, uri, "table")
		if err != nil {
			t.Fatal(err)
		}
		bytes, known := table.Bytes.Value()
		if !known || bytes < 80 || table.Rows != dipc.Known(10) || table.Batches != dipc.Known(1) || !table.Schema.Equal(numbersSchema) {
			t.Errorf("%+v", table)
		}
		itself := []dipc.Endpoint{{Ticket: "table", Rows: table.Rows, Bytes: table.Bytes}}
		if !reflect.DeepEqual(table.Endpoints, itself) || table.Headers != nil {
			t.Errorf("%+v", table)
		}
		for ticket, headers := range map[string]dipc.Headers{"provided": nil, "a query": {"described": {"a query"}}} {
			got, err := dipc.Describe(ctx, uri, ticket)
			if err != nil {
				t.Fatal(err)
			}
			if !got.Schema.Equal(numbersSchema) || !reflect.DeepEqual(got.Headers, headers) {
				t.Errorf("%q is %+v", ticket, got)
			}
			got.Schema, got.Headers = numbersSchema, nil
			if !reflect.DeepEqual(got, &parts) {
				t.Errorf("%q is %+v", ticket, got)
			}
		}
		_, err = dipc.Describe(ctx, uri, "unknown")
		fails(t, err, dipc.ErrNotFound, "")
		_, err = dipc.Get(ctx, uri, "unknown")
		fails(t, err, dipc.ErrNotFound, `there is no "unknown"`)
	})
}

// The tickets that begin with a prefix are listed with what is known of them.
func TestList(t *testing.T) {
	overBoth(t, func(t *testing.T, uri string) {
		all, err := dipc.List(testContext(t), uri, "")
		if err != nil {
			t.Fatal(err)
		}
		rows := map[string]string{}
		for _, endpoint := range all.Endpoints {
			rows[endpoint.Ticket] = endpoint.Rows.String()
		}
		delete(rows, "changing")
		if !reflect.DeepEqual(rows, map[string]string{"table": "10", "provided": "10"}) || all.Headers != nil {
			t.Errorf("%+v", all)
		}
		one, err := dipc.List(testContext(t), uri, "tab")
		if err != nil || len(one.Endpoints) != 1 || one.Endpoints[0].Ticket != "table" {
			t.Errorf("%+v, %v", one, err)
		}
		handled, err := dipc.List(testContext(t), uri, "q\xff")
		wanted := &dipc.Listing{Endpoints: parts.Endpoints, Headers: dipc.Headers{"listed": {"q\xff"}}}
		if err != nil || !reflect.DeepEqual(handled, wanted) {
			t.Errorf("%+v, %v", handled, err)
		}
	})
}

// A handler comes and goes, and refuses what it has no function for.
func TestHandlersComeAndGo(t *testing.T) {
	server, uri := newServer(t)
	ctx := testContext(t)
	ask := func(status dipc.Status, get, describe, list string) {
		t.Helper()
		_, err := dipc.Get(ctx, uri, "t")
		fails(t, err, status, get)
		_, err = dipc.Describe(ctx, uri, "t")
		fails(t, err, status, describe)
		_, err = dipc.List(ctx, uri, "t")
		if list == "" && err == nil {
			return
		}
		fails(t, err, status, list)
	}
	set := func(handler *dipc.Handler, options ...dipc.ServeOption) {
		t.Helper()
		if err := server.SetHandler(handler, options...); err != nil {
			t.Fatal(err)
		}
	}
	ask(dipc.ErrNotFound, "no ticket", "no ticket", "")
	set(&dipc.Handler{}, dipc.Deterministic())
	ask(dipc.ErrUnsupported, "give tables", "describe tickets", "list tickets")
	set(&dipc.Handler{
		Get:      func(context.Context, string) (array.RecordReader, error) { return nil, nil },
		Describe: func(context.Context, string) (*dipc.Description, error) { return nil, nil },
		List:     func(context.Context, string) ([]dipc.Endpoint, error) { panic("no list: neither") },
	})
	ask(dipc.ErrProvider, "neither", "neither", "neither")
	set(&dipc.Handler{
		Describe: func(context.Context, string) (*dipc.Description, error) { return &dipc.Description{}, nil },
		List:     func(context.Context, string) ([]dipc.Endpoint, error) { return nil, nil },
	})
	description, err := dipc.Describe(ctx, uri, "t")
	if err != nil || !reflect.DeepEqual(description, &dipc.Description{}) {
		t.Errorf("%+v, %v", description, err)
	}
	listing, err := dipc.List(ctx, uri, "t")
	if err != nil || !reflect.DeepEqual(listing, &dipc.Listing{}) {
		t.Errorf("%+v, %v", listing, err)
	}
	set(nil)
	ask(dipc.ErrNotFound, "no ticket", "no ticket", "")
	server.Close()
	fails(t, server.SetHandler(nil), dipc.ErrStopped, "closed")
	fails(t, server.SetHandler(&dipc.Handler{}), dipc.ErrStopped, "closed")
}

// What cannot be sent is refused before it is.
func TestWrongRequests(t *testing.T) {
	server, uri := newServer(t)
	publish(t, server, "table")
	ctx := testContext(t)
	for words, headers := range map[string]dipc.Headers{
		"other characters":   {"Key": {""}},
		"sets such headers":  {"dipc-key": {""}},
		"NUL":                {"a\x00": {""}},
		"the limit is 65536": {"large": {strings.Repeat("x", 65<<10)}},
	} {
		_, err := dipc.Get(ctx, uri, "table", dipc.WithHeaders(headers))
		fails(t, err, dipc.ErrInvalidArgument, words)
	}
	fails(t, dipc.AddHeaders(ctx, nil), dipc.ErrInvalidArgument, "context of a provider")
	if dipc.RequestHeaders(ctx) != nil || dipc.RequestPeer(ctx) != (dipc.Peer{}) {
		t.Error("this is no provider's context")
	}
	fails(t, server.Replace("table", nil), dipc.ErrInvalidArgument, "schema")
	fails(t, server.SetDescription("table", nil), dipc.ErrInvalidArgument, "nil")
	fails(t, server.SetDescription("absent", &parts), dipc.ErrNotFound, "absent")
	fails(t, server.SetDescription("table", &dipc.Description{Endpoints: []dipc.Endpoint{{URIs: []string{"a\x00"}}}}), dipc.ErrInvalidArgument, "NUL")
	fails(t, server.SetDescription("table", &dipc.Description{Endpoints: []dipc.Endpoint{{URIs: []string{"\xff"}}}}), dipc.ErrInvalidArgument, "UTF-8")
	if n, known := (dipc.Count{}).Value(); n != 0 || known || dipc.Known(math.MaxUint64) != (dipc.Count{}) || (dipc.Count{}).String() != "unknown" {
		t.Error("a count that is not known")
	}

	// Headers that come too late have no stream to go with.
	kept := make(chan context.Context, 1)
	err := server.Serve("kept", func(ctx context.Context, _ string) (array.RecordReader, error) {
		kept <- ctx
		return array.NewRecordReader(numbersSchema, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	count(t, get(t, uri, "kept"))
	over := <-kept
	<-over.Done()
	eventually(t, "the stream is over", func() bool {
		return dipc.AddHeaders(over, nil) != nil
	})
}
