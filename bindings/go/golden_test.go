package dipc_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// Every type and shape arrives as arrow-go itself reads it from the file, whether the table was
// published or comes from a provider.
func TestGoldenStreams(t *testing.T) {
	files := goldenFiles(t)
	server, uri := newServer(t)
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			wanted := readFile(t, file)
			if err := server.Publish("published "+name, wanted.schema, wanted.batches...); err != nil {
				t.Fatal(err)
			}
			err := server.Serve("provided "+name, func(context.Context, string) (array.RecordReader, error) {
				return array.NewRecordReader(wanted.schema, wanted.batches)
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, way := range []string{"published ", "provided "} {
				compare(t, get(t, uri, way+name, dipc.WithValidation(dipc.ValidateFull)), wanted)
			}
		})
	}
}

// unreadable are the streams that arrow-go's own IPC reader does not take.
var unreadable = map[string]string{
	"lists.arrows":      listsOfNone,
	"no_batches.arrows": listsOfNone,
	"no_rows.arrows":    listsOfNone,
}

const listsOfNone = "arrow-go does not read fixed-size lists of no values"

func goldenFiles(t *testing.T) []string {
	var files []string
	for _, pattern := range []string{
		filepath.Join("..", "..", "tests", "vectors", "*.arrows"),
		filepath.Join(os.Getenv("DIPC_GOLDEN"), "streams", "*.stream"),
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		t.Fatal("no streams in tests/vectors")
	}
	return files
}

type table struct {
	schema  *arrow.Schema
	batches []arrow.RecordBatch
}

func readFile(t *testing.T, path string) table {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	read, err := ipc.NewReader(file, ipc.WithDelayReadSchema(false))
	reason, known := unreadable[filepath.Base(path)]
	if known && err != nil {
		t.Skip(reason)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer read.Release()
	got := table{schema: read.Schema()}
	for read.Next() {
		batch := read.RecordBatch()
		batch.Retain()
		t.Cleanup(batch.Release)
		got.batches = append(got.batches, batch)
	}
	if known && read.Err() != nil {
		t.Skip(reason)
	}
	if read.Err() != nil {
		t.Fatal(read.Err())
	}
	if known {
		t.Fatal("arrow-go reads it now: take it off the list")
	}
	return withoutEmptyBinaries(got)
}

// withoutEmptyBinaries leaves out fixed-size binaries of no bytes, which arrow-go exports and does
// not import.
func withoutEmptyBinaries(whole table) table {
	metadata := whole.schema.Metadata()
	var kept []int
	var fields []arrow.Field
	for i, field := range whole.schema.Fields() {
		if binary, ok := field.Type.(*arrow.FixedSizeBinaryType); !ok || binary.ByteWidth > 0 {
			kept, fields = append(kept, i), append(fields, field)
		}
	}
	if len(kept) == whole.schema.NumFields() {
		return whole
	}
	part := table{schema: arrow.NewSchema(fields, &metadata)}
	for _, batch := range whole.batches {
		columns := make([]arrow.Array, len(kept))
		for i, column := range kept {
			columns[i] = batch.Column(column)
		}
		part.batches = append(part.batches, array.NewRecordBatch(part.schema, columns, batch.NumRows()))
	}
	return part
}

// What arrow-go cannot import is an error of the call, not a panic.
func TestTypeThatArrowGoCannotImport(t *testing.T) {
	server, uri := newServer(t)
	schema := arrow.NewSchema([]arrow.Field{{Name: "none", Type: &arrow.FixedSizeBinaryType{ByteWidth: 0}}}, nil)
	if err := server.Publish("none", schema); err != nil {
		t.Fatal(err)
	}
	_, err := dipc.Get(testContext(t), uri, "none")
	fails(t, err, dipc.ErrInvalidData, "arrow-go cannot read what was sent")
}

func compare(t *testing.T, got array.RecordReader, wanted table) {
	t.Helper()
	if !got.Schema().Equal(wanted.schema) {
		t.Fatalf("the schema is\n%s\nand not\n%s", got.Schema(), wanted.schema)
	}
	metadata, other := got.Schema().Metadata(), wanted.schema.Metadata()
	if !metadata.Equal(other) {
		t.Fatalf("the schema's metadata is %s and not %s", metadata, other)
	}
	n := 0
	for got.Next() {
		if n == len(wanted.batches) {
			t.Fatalf("there are more than %d batches", n)
		}
		batch := got.RecordBatch()
		if !equal(batch, wanted.batches[n]) {
			t.Fatalf("batch %d is\n%v\nand not\n%v", n, batch, wanted.batches[n])
		}
		n++
	}
	if got.Err() != nil {
		t.Fatal(got.Err())
	}
	if n != len(wanted.batches) {
		t.Fatalf("there are %d batches and not %d", n, len(wanted.batches))
	}
}

// equal compares values; dictionaries by what they stand for, since deltas arrive joined.
func equal(a, b arrow.RecordBatch) bool {
	if a.NumCols() != b.NumCols() || a.NumRows() != b.NumRows() {
		return false
	}
	for i, column := range a.Columns() {
		other := b.Column(i)
		same := array.Equal(column, other) ||
			array.ApproxEqual(column, other, array.WithNaNsEqual(true), array.WithAbsTolerance(0)) ||
			strings.Contains(column.DataType().String(), "dictionary") && json(column) == json(other)
		if !same {
			return false
		}
	}
	return true
}

func json(column arrow.Array) string {
	text, err := column.MarshalJSON()
	if err != nil {
		return err.Error()
	}
	return string(text)
}
