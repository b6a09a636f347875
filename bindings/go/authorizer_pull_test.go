package dipc_test

import (
	"context"
	"errors"
	"testing"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow/memory"
)

// In the pull form the program decides about each request before it serves it: it names the client, refuses
// with a status and a text, and refuses what it closes undecided.
func TestAuthorizerPull(t *testing.T) {
	server, err := dipc.NewServer(dipc.WithAuthorizerPull())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for _, ticket := range []string{"table", "secret", "closed"} {
		if err := server.ServePull(ticket); err != nil {
			t.Fatal(err)
		}
	}
	uri, err := server.Listen(address(t))
	if err != nil {
		t.Fatal(err)
	}
	answer := func(request *dipc.Request) error {
		defer request.Close()
		switch {
		case !request.Undecided && request.Ticket == "table":
			if err := request.Allow(); !errors.Is(err, dipc.ErrInvalidArgument) {
				return errors.Join(errors.New("a request was decided twice"), err)
			}
			batch := numbers(memory.DefaultAllocator, 0, len(request.Principal))
			defer batch.Release()
			return errors.Join(request.Start(numbersSchema), request.Push(context.Background(), batch),
				request.Finish(context.Background()))
		case !request.Undecided:
			return errors.New("a refused request is served")
		case request.Ticket == "secret":
			request.Fail(&dipc.Error{Status: dipc.ErrNotFound, Text: "not for you"})
		case request.Ticket == "table":
			if err := dipc.SetPrincipal(request.Context(), request.Headers.Get("user")); err != nil {
				return err
			}
			return request.Allow()
		}
		return nil
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		for {
			request, err := server.NextRequest(ctx)
			if err != nil {
				ended <- nil
				return
			}
			if err := answer(request); err != nil {
				t.Error(err)
			}
		}
	}()
	reader, err := dipc.Get(context.Background(), uri, "table", dipc.WithHeaders(dipc.Headers{"user": {"alice"}}))
	if err != nil {
		t.Fatal(err)
	}
	rows := int64(0)
	for reader.Next() {
		rows += reader.RecordBatch().NumRows()
	}
	reader.Release()
	if rows != int64(len("alice")) {
		t.Errorf("the client has %d rows", rows)
	}
	_, err = dipc.Get(context.Background(), uri, "secret")
	fails(t, err, dipc.ErrNotFound, "not for you")
	_, err = dipc.Get(context.Background(), uri, "closed")
	if err == nil {
		t.Error("a request that was closed undecided is allowed")
	}
	stop()
	<-ended
}
