package dipc_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow/array"
)

// A ticket is any bytes, and each verb brings all of them to the server: bytes that are not UTF-8, NULs, and an empty
// ticket.
func TestTicketsAreBytes(t *testing.T) {
	var mu sync.Mutex
	asked := map[string][]dipc.Verb{}
	note := func(ticket string, verb dipc.Verb) {
		mu.Lock()
		defer mu.Unlock()
		asked[ticket] = append(asked[ticket], verb)
	}
	server, uri := newServer(t)
	none := func() (array.RecordReader, error) { return array.NewRecordReader(numbersSchema, nil) }
	drain := func(ctx context.Context, source *dipc.Source) error {
		reader, err := source.Accept(ctx)
		if err != nil {
			return err
		}
		defer reader.Release()
		for reader.Next() {
		}
		return reader.Err()
	}
	if err := server.SetHandler(&dipc.Handler{
		Get: func(_ context.Context, ticket string) (array.RecordReader, error) {
			note(ticket, dipc.VerbGet)
			return none()
		},
		Put: func(ctx context.Context, descriptor string, source *dipc.Source) error {
			note(descriptor, dipc.VerbPut)
			return drain(ctx, source)
		},
		Exchange: func(ctx context.Context, descriptor string, source *dipc.Source) (array.RecordReader, error) {
			note(descriptor, dipc.VerbExchange)
			if err := drain(ctx, source); err != nil {
				return nil, err
			}
			return none()
		},
		Describe: func(_ context.Context, ticket string) (*dipc.Description, error) {
			note(ticket, dipc.VerbDescribe)
			return &dipc.Description{Endpoints: []dipc.Endpoint{{Ticket: ticket}}}, nil
		},
		List: func(_ context.Context, prefix string) ([]dipc.Endpoint, error) {
			note(prefix, dipc.VerbList)
			return []dipc.Endpoint{{Ticket: prefix + "\x00"}}, nil
		},
	}); err != nil {
		t.Fatal(err)
	}
	verbs := []dipc.Verb{dipc.VerbGet, dipc.VerbPut, dipc.VerbExchange, dipc.VerbDescribe, dipc.VerbList}
	for _, ticket := range [][]byte{{0xff, 0x00, 0xfe}, {0}, {}, slices.Repeat([]byte{0x80, 0}, 50_000)} {
		name, ctx := string(ticket), testContext(t)
		get(t, uri, name).Release()
		put, err := dipc.Put(ctx, uri, name, numbersSchema)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := put.Finish(ctx); err != nil {
			t.Fatal(err)
		}
		put.Close()
		writer, reader, err := dipc.Exchange(ctx, uri, name, numbersSchema)
		if err != nil {
			t.Fatal(err)
		}
		finished := make(chan error, 1)
		go func() {
			_, err := writer.Finish(ctx)
			finished <- err
		}()
		for reader.Next() {
		}
		if err := <-finished; err != nil || reader.Err() != nil {
			t.Fatal(err, reader.Err())
		}
		reader.Release()
		writer.Close()
		description, err := dipc.Describe(ctx, uri, name)
		if err != nil || description.Endpoints[0].Ticket != name {
			t.Fatalf("%+v, %v", description, err)
		}
		listing, err := dipc.List(ctx, uri, name)
		if err != nil || len(listing.Endpoints) != 1 || listing.Endpoints[0].Ticket != name+"\x00" {
			t.Fatalf("%+v, %v", listing, err)
		}
		mu.Lock()
		if !slices.Equal(asked[name], verbs) {
			t.Errorf("of %d bytes: asked by %v", len(name), asked[name])
		}
		mu.Unlock()
	}
	// So do the tickets that a server has of its own.
	for _, ticket := range []string{"\xff\x00", "\x00"} {
		if err := server.Publish(ticket, numbersSchema); err != nil {
			t.Fatal(err)
		}
	}
	if tickets, err := server.Tickets(); err != nil || !slices.Equal(tickets, []string{"\x00", "\xff\x00"}) {
		t.Fatalf("%q, %v", tickets, err)
	}
}
