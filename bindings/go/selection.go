package dipc

// #include "shim.h"
import "C"

import (
	"context"
	"math"
	"unsafe"
)

// AllRows, as a number of rows: those up to the end of a table.
const AllRows = uint64(math.MaxUint64)

// WithColumns fetches only these columns, in this order. Without any name it fetches rows without columns. Other
// columns are not sent. Get fails with [ErrInvalidArgument] if the table does not have a column, or has several of the
// name.
func WithColumns(names ...string) GetOption {
	return getOption(func(r *getRequest) error {
		texts := make([]*C.char, 0, len(names))
		defer func() {
			for _, text := range texts {
				C.free(unsafe.Pointer(text))
			}
		}()
		for _, name := range names {
			text, err := cString("name of a column", name)
			if err != nil {
				return err
			}
			texts = append(texts, text)
		}
		var failure *C.dipc_error
		first := unsafe.SliceData(texts)
		return check(C.dipc_get_options_set_columns(r.options, first, C.size_t(len(texts)), &failure), failure)
	})
}

// WithRows fetches a range of the rows: at most rows of them ([AllRows]: all up to the end), from the row
// first on, counting from 0. Batches outside the range are not sent, and the server ends the stream after
// the last row.
func WithRows(first, rows uint64) GetOption {
	return getOption(func(r *getRequest) error {
		var failure *C.dipc_error
		return check(C.dipc_get_options_set_range(r.options, C.uint64_t(first), C.uint64_t(rows), &failure), failure)
	})
}

// WithFilter fetches only the rows that pass a filter, which the server evaluates: a substrait.ExtendedExpression of
// booleans, at most 64 KiB. The rows of [WithRows] count those that pass. Get fails with [ErrInvalidArgument] if the
// message is malformed or the table does not have a column, and with [ErrUnsupported] if filters do not support it, or
// the server knows no filters.
func WithFilter(message []byte) GetOption {
	return getOption(func(r *getRequest) error {
		first := (*C.uint8_t)(pointer(message))
		var failure *C.dipc_error
		return check(C.dipc_get_options_set_filter(r.options, first, C.size_t(len(message)), &failure), failure)
	})
}

// Selection is what a client wants of a table, by [WithColumns], [WithRows] and [WithFilter].
type Selection struct {
	// Columns are the names of the columns, in the client's order. Nil: all columns.
	Columns []string
	// Filter is a substrait.ExtendedExpression, not checked yet, that the rows pass. FirstRow and Rows count the rows that
	// pass. Nil: all rows.
	Filter []byte
	// FirstRow is the first row, counting from 0.
	FirstRow uint64
	// Rows are the most rows that are wanted; [AllRows] without a limit.
	Rows uint64
}

// RequestSelection is what the client wants of the table. A [Provider] gives the whole table, and the library selects
// from it without a copy, unless the provider calls [TakeSelection]. The context is that of a provider or a [Request],
// or made from it; with any other context the selection is the whole table.
func RequestSelection(ctx context.Context) (Selection, error) {
	whole := Selection{Rows: AllRows}
	request := requestOf(ctx)
	if request == nil {
		return whole, nil
	}
	request.mu.Lock()
	defer request.mu.Unlock()
	object := request.request
	if object == nil {
		return whole, invalid("the selection is asked for before the stream is over")
	}
	selection := Selection{
		FirstRow: uint64(C.dipc_request_first_row(object)),
		Rows:     uint64(C.dipc_request_rows(object)),
	}
	filter, status := readBytes(func(buffer *C.uint8_t, size C.size_t, length *C.size_t) C.dipc_status {
		return C.dipc_request_filter(object, buffer, size, length, nil)
	})
	if err := check(status, nil); err != nil {
		return whole, err
	}
	if filter != "" {
		selection.Filter = []byte(filter)
	}
	if !bool(C.dipc_request_selects_columns(object)) {
		return selection, nil
	}
	count := C.dipc_request_column_count(object)
	selection.Columns = make([]string, 0, count)
	for index := range count {
		name, status := readText(func(buffer *C.char, size C.size_t, length *C.size_t) C.dipc_status {
			return C.dipc_request_column(object, index, buffer, size, length, nil)
		})
		if err := check(status, nil); err != nil {
			return whole, err
		}
		selection.Columns = append(selection.Columns, name)
	}
	return selection, nil
}

// TakeSelection says that the program itself selects: its stream has only the wanted columns, in their order, and only
// the wanted rows. The context is that of a [Provider] or a [Request], or made from it. Call it before the provider
// returns, or before [Request.Start].
func TakeSelection(ctx context.Context) error {
	request := requestOf(ctx)
	if request == nil {
		return invalid("a selection is taken with the context of a provider, and this one is another")
	}
	request.mu.Lock()
	defer request.mu.Unlock()
	if request.request == nil {
		return invalid("a selection is taken before the stream is over")
	}
	var failure *C.dipc_error
	return check(C.dipc_request_take_selection(request.request, &failure), failure)
}

// IsComplete reports whether the client has all rows that it wants: more batches are useless, and
// [Request.Finish] may follow.
func (r *Request) IsComplete() bool {
	object, err := r.handle.use()
	if err != nil {
		return false
	}
	defer r.handle.done()
	return bool(C.dipc_request_is_complete(object))
}
