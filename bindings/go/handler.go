package dipc

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"runtime/cgo"

	"github.com/apache/arrow-go/v18/arrow/array"
)

// Handler answers for every ticket that the server itself does not serve: queries, commands, keys of partitions. A
// request without a function here is refused with [ErrUnsupported]. The functions are called like a [Provider], with
// the same kind of context, and fail in the same way.
type Handler struct {
	// Get opens the table of a ticket.
	Get Provider
	// Put takes the table that a client sends under a descriptor: it accepts it by [Source.Accept] and
	// reads it to its end, or returns an error, which refuses the table or fails it. nil says that the
	// program has taken the whole table.
	Put func(ctx context.Context, descriptor string, source *Source) error
	// Exchange takes the table that a client sends as Put does, and opens the table that the client gets meanwhile. That
	// table's reader may read the client's table, and must have read it to its end before it ends itself.
	Exchange func(ctx context.Context, descriptor string, source *Source) (array.RecordReader, error)
	// Describe says what a ticket stands for.
	Describe func(ctx context.Context, ticket string) (*Description, error)
	// List gives the tickets that begin with prefix. If the server itself has such tickets, it gives those and does not
	// call List.
	List func(ctx context.Context, prefix string) ([]Endpoint, error)
}

// SetHandler lets handler serve all tickets that have no provider or table of their own. It replaces an earlier
// handler, whose streams go on. nil: such tickets are not found.
func (s *Server) SetHandler(handler *Handler, options ...ServeOption) error {
	var kept cgo.Handle
	if handler != nil {
		own := *handler
		kept = cgo.NewHandle(&own)
	}
	err := s.call(func(object *C.dipc_server, failure **C.dipc_error) C.dipc_status {
		return C.dipcgo_server_set_handler(object, C.uintptr_t(kept), flagsOf(options), failure)
	})
	if err != nil && handler != nil {
		kept.Delete()
	}
	return err
}

func (h *Handler) answer(p *producer, out *C.struct_ArrowDeviceArrayStream) error {
	request := p.request.request
	ticket, status := readTicket(request)
	if err := check(status, nil); err != nil {
		return err
	}
	switch verb := C.dipc_request_verb(request); {
	case verb == C.DIPC_VERB_GET && h.Get != nil:
		return p.open(h.Get, ticket, out)
	case verb == C.DIPC_VERB_PUT && h.Put != nil:
		return takeTable(p.request, func(source *Source) error { return h.Put(p.request, ticket, source) })
	case verb == C.DIPC_VERB_EXCHANGE && h.Exchange != nil:
		return p.exchange(h.Exchange, ticket, out)
	case verb == C.DIPC_VERB_DESCRIBE && h.Describe != nil:
		description, err := h.Describe(p.request, ticket)
		if err != nil {
			return err
		}
		if description == nil {
			return errors.New("the handler gave neither a description nor an error")
		}
		return description.writeTo(out)
	case verb == C.DIPC_VERB_LIST && h.List != nil:
		endpoints, err := h.List(p.request, ticket)
		if err != nil {
			return err
		}
		return (&Description{Endpoints: endpoints}).writeTo(out)
	case verb == C.DIPC_VERB_GET:
		return unsupported("give tables")
	case verb == C.DIPC_VERB_PUT:
		return unsupported("take tables")
	case verb == C.DIPC_VERB_EXCHANGE:
		return unsupported("exchange tables")
	case verb == C.DIPC_VERB_DESCRIBE:
		return unsupported("describe tickets")
	case verb == C.DIPC_VERB_LIST:
		return unsupported("list tickets")
	default:
		return unsupported("know this verb")
	}
}

func unsupported(what string) error {
	return &Error{Status: ErrUnsupported, Text: "the server's handler does not " + what}
}
