package dipc_test

import (
	"path/filepath"
	"reflect"
	"runtime"
	"testing"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Slices of every type arrive as the rows that they are (rule A7): offsets of structs, lists, unions
// and dictionaries are counted once.
func TestSlices(t *testing.T) {
	server, uri := newServer(t)
	for _, file := range goldenFiles(t) {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			whole := readFile(t, file)
			part := table{schema: whole.schema}
			for _, batch := range whole.batches {
				if batch.NumRows() > 3 {
					slice := batch.NewSlice(1, batch.NumRows()-1)
					defer slice.Release()
					again := slice.NewSlice(1, slice.NumRows())
					defer again.Release()
					part.batches = append(part.batches, slice, again)
				}
			}
			if err := server.Publish(name, part.schema, part.batches...); err != nil {
				t.Fatal(err)
			}
			compare(t, get(t, uri, name, dipc.WithValidation(dipc.ValidateFull)), part)
		})
	}
}

// A sliced struct inside a list inside a struct.
func TestSlicedStruct(t *testing.T) {
	inner := arrow.StructOf(arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int32, Nullable: true})
	builder := array.NewStructBuilder(memory.DefaultAllocator, inner)
	defer builder.Release()
	for i := range 10 {
		builder.Append(true)
		builder.FieldBuilder(0).(*array.Int32Builder).Append(int32(i))
	}
	whole := builder.NewStructArray()
	defer whole.Release()
	slice := array.NewSlice(whole, 4, 7)
	defer slice.Release()
	schema := arrow.NewSchema([]arrow.Field{{Name: "s", Type: inner}}, nil)
	batch := array.NewRecordBatch(schema, []arrow.Array{slice}, 3)
	defer batch.Release()

	server, uri := newServer(t)
	if err := server.Publish("slice", schema, batch); err != nil {
		t.Fatal(err)
	}
	got := get(t, uri, "slice")
	if !got.Next() {
		t.Fatal(got.Err())
	}
	values := got.RecordBatch().Column(0).(*array.Struct).Field(0).(*array.Int32).Int32Values()
	if !reflect.DeepEqual(values, []int32{4, 5, 6}) {
		t.Fatalf("%v", values)
	}
}

// Extension types arrive as what they are, also where their storage has children or a dictionary, and
// inside other types.
func TestExtensionTypes(t *testing.T) {
	dictionary := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	for name, storage := range map[string]arrow.DataType{
		"flat":       arrow.PrimitiveTypes.Int32,
		"list":       arrow.ListOf(arrow.PrimitiveTypes.Int32),
		"struct":     arrow.StructOf(arrow.Field{Name: "a", Type: arrow.BinaryTypes.String, Nullable: true}),
		"dictionary": dictionary,
	} {
		opaque := extensions.NewOpaqueType(storage, "a thing", "a vendor")
		for around, wrapped := range map[string]func(arrow.DataType) arrow.DataType{
			"":         func(inner arrow.DataType) arrow.DataType { return inner },
			"list of ": func(inner arrow.DataType) arrow.DataType { return arrow.ListOf(inner) },
			"struct of ": func(inner arrow.DataType) arrow.DataType {
				return arrow.StructOf(arrow.Field{Name: "x", Type: inner, Nullable: true})
			},
		} {
			t.Run(around+name, func(t *testing.T) {
				extended := arrow.Field{Name: "e", Type: wrapped(opaque), Nullable: true, Metadata: arrow.NewMetadata([]string{"k"}, []string{"v"})}
				schema := arrow.NewSchema([]arrow.Field{extended}, nil)
				column := array.MakeArrayOfNull(memory.DefaultAllocator, wrapped(storage), 3)
				defer column.Release()
				data := array.NewData(extended.Type, 3, column.Data().Buffers(), retype(column.Data().Children(), extended.Type), 3, 0)
				if storage == dictionary && around == "" {
					data = array.NewDataWithDictionary(extended.Type, 3, column.Data().Buffers(), 3, 0, column.Data().Dictionary().(*array.Data))
				}
				defer data.Release()
				extendedColumn := array.MakeFromData(data)
				defer extendedColumn.Release()
				batch := array.NewRecordBatch(schema, []arrow.Array{extendedColumn}, 3)
				defer batch.Release()
				server, uri := newServer(t)
				if err := server.Publish("t", schema, batch); err != nil {
					t.Fatal(err)
				}
				got := get(t, uri, "t")
				field := got.Schema().Field(0)
				if value, _ := field.Metadata.GetValue("k"); value != "v" {
					t.Fatalf("the field's metadata is %s", field.Metadata)
				}
				compare(t, got, table{schema, []arrow.RecordBatch{batch}})
			})
		}
	}
}

// retype gives the children of a list or struct the type that the parent says.
func retype(children []arrow.ArrayData, parent arrow.DataType) []arrow.ArrayData {
	nested, ok := parent.(arrow.NestedType)
	if !ok {
		return children
	}
	changed := make([]arrow.ArrayData, len(children))
	for i, child := range children {
		changed[i] = child
		if field := nested.Fields()[i]; field.Type.ID() == arrow.EXTENSION {
			var dictionary *array.Data
			if given, ok := child.Dictionary().(*array.Data); ok {
				dictionary = given
			}
			changed[i] = array.NewDataWithDictionary(field.Type, child.Len(), child.Buffers(), child.NullN(), child.Offset(), dictionary)
			if dictionary == nil {
				changed[i] = array.NewData(field.Type, child.Len(), child.Buffers(), child.Children(), child.NullN(), child.Offset())
			}
		}
	}
	return changed
}

// Memory of the Go heap stays where it is while a client holds it, though the program has forgotten it.
func TestGoMemoryIsPinned(t *testing.T) {
	server, uri := newServer(t)
	if err := server.Serve("heap", provide(func() array.RecordReader {
		n := 0
		return &reader{schema: numbersSchema, next: func() (arrow.RecordBatch, error) {
			if n++; n > 5 {
				return nil, nil
			}
			return numbers(memory.NewGoAllocator(), n*1000, 1000), nil
		}}
	})); err != nil {
		t.Fatal(err)
	}
	got := get(t, uri, "heap")
	for n := 1; got.Next(); n++ {
		runtime.GC()
		if err := checkNumbers(got.RecordBatch(), n*1000, 1000); err != nil {
			t.Fatal(err)
		}
	}
	if got.Err() != nil {
		t.Fatal(got.Err())
	}
}

// sly is an array whose data panics from the second look on.
type sly struct {
	arrow.Array
	looks *int
}

func (s sly) Data() arrow.ArrayData {
	if *s.looks++; *s.looks > 1 {
		panic("not again")
	}
	return s.Array.Data()
}

// A panic in the middle of a batch is the stream's error, and leaves nothing pinned: the garbage
// collector ends a process that forgets pins.
func TestPanicWhileExporting(t *testing.T) {
	server, uri := newServer(t)
	if err := server.Serve("sly", provide(func() array.RecordReader {
		whole := numbers(memory.NewGoAllocator(), 0, 1000)
		schema := arrow.NewSchema([]arrow.Field{numbersSchema.Field(0), numbersSchema.Field(0)}, nil)
		columns := []arrow.Array{whole.Column(0), sly{whole.Column(0), new(int)}}
		return &reader{schema: schema, release: whole.Release, next: func() (arrow.RecordBatch, error) {
			return array.NewRecordBatch(schema, columns, 1000), nil
		}}
	})); err != nil {
		t.Fatal(err)
	}
	got := get(t, uri, "sly")
	if got.Next() {
		t.Fatal("there is no such batch")
	}
	fails(t, got.Err(), dipc.ErrProvider, "not again")
	for range 3 {
		runtime.GC()
	}
}
