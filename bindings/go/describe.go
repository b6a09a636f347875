package dipc

// #include "shim.h"
import "C"

import (
	"context"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Describe asks the server at uri what ticket stands for, with a client that the program shares: the schema, the totals
// and the endpoints, and no data. For a published table all of this is known; for a provider's ticket, what
// [Server.SetDescription] said. The server's [Handler] answers for other tickets.
func Describe(ctx context.Context, uri, ticket string, options ...GetOption) (*Description, error) {
	client, err := shared()
	if err != nil {
		return nil, err
	}
	return client.Describe(ctx, uri, ticket, options...)
}

// Describe is the package's [Describe] with this client.
func (c *Client) Describe(ctx context.Context, uri, ticket string, options ...GetOption) (*Description, error) {
	var object *C.dipc_description
	take := func(pending *C.dipc_pending, failure **C.dipc_error) C.dipc_status {
		return C.dipc_pending_try_description(pending, &object, failure)
	}
	cancel, err := c.ask(&getRequest{ctx: ctx}, uri, byContext(options), C.DIPC_VERB_DESCRIBE, ticket, take)
	if err != nil {
		return nil, err
	}
	cancel.free()
	defer C.dipc_description_free(object)
	return readDescription(object)
}

// Listing is a server's answer to [List].
type Listing struct {
	// Endpoints are the tickets, each with its totals as far as they are known.
	Endpoints []Endpoint
	// Headers came with the answer.
	Headers Headers
}

// List asks the server at uri which of its tickets begin with prefix, with a client that the program shares; "" asks
// for all. If the server itself has no such ticket, its [Handler] answers.
func List(ctx context.Context, uri, prefix string, options ...GetOption) (*Listing, error) {
	client, err := shared()
	if err != nil {
		return nil, err
	}
	return client.List(ctx, uri, prefix, options...)
}

// List is the package's [List] with this client.
func (c *Client) List(ctx context.Context, uri, prefix string, options ...GetOption) (*Listing, error) {
	reader, err := c.read(ctx, uri, options, C.DIPC_VERB_LIST, prefix)
	if err != nil {
		return nil, err
	}
	defer reader.Release()
	if !isListing(reader.Schema()) {
		return nil, &Error{Status: ErrInvalidData, Text: "the server answers with a table that is no list: " +
			"its handler may not know the verb"}
	}
	listing := &Listing{}
	for reader.Next() {
		listing.add(reader.RecordBatch())
	}
	if err := reader.Err(); err != nil {
		return nil, err
	}
	listing.Headers, err = reader.Headers()
	return listing, err
}

// isListing tells whether the columns are those of a list: descriptor, uris, rows and bytes.
func isListing(schema *arrow.Schema) bool {
	types := [...]arrow.Type{arrow.BINARY, arrow.LIST, arrow.INT64, arrow.INT64}
	if schema.NumFields() != len(types) {
		return false
	}
	for i, id := range types {
		if schema.Field(i).Type.ID() != id {
			return false
		}
	}
	uris := schema.Field(1).Type.(*arrow.ListType)
	return uris.Elem().ID() == arrow.STRING
}

// add copies the rows of a batch: its memory goes back to the server.
func (l *Listing) add(batch arrow.RecordBatch) {
	tickets, lists := batch.Column(0).(*array.Binary), batch.Column(1).(*array.List)
	uris := lists.ListValues().(*array.String)
	for row := range int(batch.NumRows()) {
		endpoint := Endpoint{
			Ticket: string(tickets.Value(row)),
			Rows:   countAt(batch.Column(2), row),
			Bytes:  countAt(batch.Column(3), row),
		}
		first, end := lists.ValueOffsets(row)
		for i := first; i < end; i++ {
			endpoint.URIs = append(endpoint.URIs, strings.Clone(uris.Value(int(i))))
		}
		l.Endpoints = append(l.Endpoints, endpoint)
	}
}

func countAt(column arrow.Array, row int) Count {
	value := column.(*array.Int64).Value(row)
	if column.IsNull(row) || value < 0 {
		return Count{}
	}
	return Known(uint64(value))
}
