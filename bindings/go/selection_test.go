package dipc_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"reflect"
	"slices"
	"testing"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

var pairSchema = arrow.NewSchema([]arrow.Field{
	{Name: "n", Type: arrow.PrimitiveTypes.Int64},
	{Name: "half", Type: arrow.PrimitiveTypes.Float64},
}, nil)

// pair is a batch of rows first, first+1, … and their halves.
func pair(first, rows int) arrow.RecordBatch {
	builder := array.NewRecordBuilder(memory.DefaultAllocator, pairSchema)
	defer builder.Release()
	for i := first; i < first+rows; i++ {
		builder.Field(0).(*array.Int64Builder).Append(int64(i))
		builder.Field(1).(*array.Float64Builder).Append(float64(i) / 2)
	}
	return builder.NewRecordBatch()
}

// halves reads the only column of a stream.
func halves(t *testing.T, reader *dipc.Reader) (values []float64) {
	t.Helper()
	if fields := reader.Schema().Fields(); len(fields) != 1 || fields[0].Name != "half" {
		t.Fatalf("the columns are %v", fields)
	}
	for reader.Next() {
		values = append(values, reader.RecordBatch().Column(0).(*array.Float64).Float64Values()...)
	}
	if err := reader.Err(); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return values
}

// TestSelection fetches a column and some rows of a published table, of a provider and of a program that pushes. A
// provider that takes the selection gives only the selected part.
func TestSelection(t *testing.T) {
	server, uri := newServer(t)
	var batches []arrow.RecordBatch
	for i := range 4 {
		batches = append(batches, pair(100*i, 100))
	}
	if err := server.Publish("published", pairSchema, batches...); err != nil {
		t.Fatal(err)
	}
	var seen []dipc.Selection
	provider := dipc.Provider(func(ctx context.Context, ticket string) (array.RecordReader, error) {
		selection, err := dipc.RequestSelection(ctx)
		if err != nil {
			return nil, err
		}
		seen = append(seen, selection)
		if ticket != "own" {
			return array.NewRecordReader(pairSchema, batches)
		}
		if err := dipc.TakeSelection(ctx); err != nil {
			return nil, err
		}
		schema := arrow.NewSchema(pairSchema.Fields()[1:], nil)
		own := array.NewRecordBatch(schema, []arrow.Array{batches[1].Column(1)}, 100)
		return array.NewRecordReader(schema, []arrow.RecordBatch{own})
	})
	for _, ticket := range []string{"provided", "own"} {
		if err := server.Serve(ticket, provider); err != nil {
			t.Fatal(err)
		}
	}
	if err := server.ServePull("pushed"); err != nil {
		t.Fatal(err)
	}
	pushed := make(chan error, 1)
	go func() {
		pushed <- func() error {
			request, err := server.NextRequest(testContext(t))
			if err != nil {
				return err
			}
			defer request.Close()
			if err := request.Start(pairSchema); err != nil {
				return err
			}
			for i := 0; !request.IsComplete(); i++ {
				if err := request.Push(testContext(t), batches[i]); err != nil {
					return err
				}
			}
			return request.Finish(testContext(t))
		}()
	}()

	var expected []float64
	for i := 150; i < 270; i++ {
		expected = append(expected, float64(i)/2)
	}
	for _, ticket := range []string{"published", "provided", "pushed"} {
		found := halves(t, get(t, uri, ticket, dipc.WithColumns("half"), dipc.WithRows(150, 120)))
		if !slices.Equal(found, expected) {
			t.Errorf("%s gives %v", ticket, found)
		}
	}
	if err := <-pushed; err != nil {
		t.Fatal(err)
	}
	own := halves(t, get(t, uri, "own", dipc.WithColumns("half"), dipc.WithRows(7, dipc.AllRows)))
	if len(own) != 100 || own[0] != 50 {
		t.Errorf("a selection of the provider's own has %d rows", len(own))
	}
	wanted := []dipc.Selection{
		{Columns: []string{"half"}, FirstRow: 150, Rows: 120},
		{Columns: []string{"half"}, FirstRow: 7, Rows: dipc.AllRows},
	}
	if !reflect.DeepEqual(seen, wanted) {
		t.Errorf("the provider saw %v", seen)
	}
}

// TestSelectionRefused asks for columns that no server can give.
func TestSelectionRefused(t *testing.T) {
	server, uri := newServer(t)
	if err := server.Publish("table", pairSchema, pair(0, 3)); err != nil {
		t.Fatal(err)
	}
	_, err := dipc.Get(testContext(t), uri, "table", dipc.WithColumns("n", "third"))
	fails(t, err, dipc.ErrInvalidArgument, `"third"; the table has "n", "half"`)
	_, err = dipc.Get(testContext(t), uri, "table", dipc.WithColumns("n", "n"))
	fails(t, err, dipc.ErrInvalidArgument, "twice")
	reader := get(t, uri, "table", dipc.WithColumns(), dipc.WithRows(1, 1))
	if !reader.Next() || reader.RecordBatch().NumCols() != 0 || reader.RecordBatch().NumRows() != 1 {
		t.Error("rows without columns do not come")
	}
	if err := dipc.TakeSelection(t.Context()); err == nil {
		t.Error("a selection is taken without a request")
	}
}

// aboveThree is n > 3; made by pyarrow, for a schema of n: int64: bytes((pyarrow.compute.field("n") >
// 3).to_substrait(schema)).hex().
const aboveThree = "" +
	"0a5a125868747470733a2f2f6769746875622e636f6d2f7375627374726169742d696f2f7375627374726169" +
	"742f626c6f622f6d61696e2f657874656e73696f6e732f66756e6374696f6e735f636f6d70617269736f6e2e" +
	"79616d6c12061a041a0267741a2a0a1c1a1a1a040a021001220a1a0812060a021200220022061a040a023803" +
	"1a0a65787072657373696f6e220b0a016e12060a043a0210013a10102c2a0c416365726f2032362e302e31"

// TestFilter fetches the rows that pass a filter, of a published table and of a provider, which sees the
// filter and may take the selection.
func TestFilter(t *testing.T) {
	filter, err := hex.DecodeString(aboveThree)
	if err != nil {
		t.Fatal(err)
	}
	server, uri := newServer(t)
	if err := server.Publish("published", pairSchema, pair(0, 100)); err != nil {
		t.Fatal(err)
	}
	provider := dipc.Provider(func(ctx context.Context, ticket string) (array.RecordReader, error) {
		selection, err := dipc.RequestSelection(ctx)
		if err != nil {
			return nil, err
		}
		if ticket == "whole" {
			if selection.Filter != nil {
				t.Errorf("without a filter the provider saw %x", selection.Filter)
			}
		} else if !bytes.Equal(selection.Filter, filter) {
			t.Errorf("the provider saw the filter %x", selection.Filter)
		}
		if ticket != "own" {
			return array.NewRecordReader(pairSchema, []arrow.RecordBatch{pair(0, 100)})
		}
		if err := dipc.TakeSelection(ctx); err != nil {
			return nil, err
		}
		schema := arrow.NewSchema(pairSchema.Fields()[1:], nil)
		own := array.NewRecordBatch(schema, []arrow.Array{pair(0, 2).Column(1)}, 2)
		return array.NewRecordReader(schema, []arrow.RecordBatch{own})
	})
	for _, ticket := range []string{"provided", "own", "whole"} {
		if err := server.Serve(ticket, provider); err != nil {
			t.Fatal(err)
		}
	}
	half, wanted := dipc.WithColumns("half"), dipc.WithFilter(filter)
	for _, ticket := range []string{"published", "provided"} {
		if found := halves(t, get(t, uri, ticket, half, wanted)); len(found) != 96 || found[0] != 2 {
			t.Errorf("%s gives %v", ticket, found)
		}
		found := halves(t, get(t, uri, ticket, half, wanted, dipc.WithRows(1, 2)))
		if !slices.Equal(found, []float64{2.5, 3}) {
			t.Errorf("rows of %s are %v", ticket, found)
		}
	}
	if found := halves(t, get(t, uri, "own", half, wanted)); !slices.Equal(found, []float64{0, 0.5}) {
		t.Errorf("a selection of the provider's own is %v", found)
	}
	if found := halves(t, get(t, uri, "whole", half)); len(found) != 100 {
		t.Errorf("without a filter there are %d rows", len(found))
	}
	for _, message := range []string{"no message", ""} {
		_, err := dipc.Get(testContext(t), uri, "published", dipc.WithFilter([]byte(message)))
		fails(t, err, dipc.ErrInvalidArgument, "filter")
	}
}
