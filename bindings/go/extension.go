package dipc

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// The C data interface has extension types as their storage and metadata that names them. cdata forgets the storage's
// dictionary when it exports, and makes no extension types when it imports (faults 4 and 5 of upstream_test.go), so
// cdata only gets schemas and batches of storage types.

// storageType is the type that values of an extension type are stored as; others are their own.
func storageType(dataType arrow.DataType) arrow.DataType {
	for {
		extension, ok := dataType.(arrow.ExtensionType)
		if !ok {
			return dataType
		}
		dataType = extension.StorageType()
	}
}

// storageField is the field with extension types as their storage and metadata.
func storageField(field arrow.Field) arrow.Field {
	for {
		extension, ok := field.Type.(arrow.ExtensionType)
		if !ok {
			break
		}
		field.Metadata = named(field.Metadata, extension)
		field.Type = extension.StorageType()
	}
	field.Type = mapFields(field.Type, storageField)
	return field
}

// named is metadata with what names the extension, unless it is there already.
func named(metadata arrow.Metadata, extension arrow.ExtensionType) arrow.Metadata {
	keys, values := slices.Clone(metadata.Keys()), slices.Clone(metadata.Values())
	for _, pair := range [][2]string{
		{ipc.ExtensionTypeKeyName, extension.ExtensionName()},
		{ipc.ExtensionMetadataKeyName, extension.Serialize()},
	} {
		if metadata.FindKey(pair[0]) < 0 {
			keys, values = append(keys, pair[0]), append(values, pair[1])
		}
	}
	return arrow.NewMetadata(keys, values)
}

// extensionField is the field with the extension types that the program has registered, if metadata names them. A field
// that its extension type does not accept stays storage and metadata.
func extensionField(field arrow.Field) arrow.Field {
	field.Type = mapFields(field.Type, extensionField)
	name, ok := field.Metadata.GetValue(ipc.ExtensionTypeKeyName)
	if !ok {
		return field
	}
	registered := arrow.GetExtensionType(name)
	if registered == nil {
		return field
	}
	serialized, _ := field.Metadata.GetValue(ipc.ExtensionMetadataKeyName)
	extension, err := registered.Deserialize(field.Type, serialized)
	if err != nil {
		return field
	}
	field.Type = extension
	var keys, values []string
	for i, key := range field.Metadata.Keys() {
		if key != ipc.ExtensionTypeKeyName && key != ipc.ExtensionMetadataKeyName {
			keys, values = append(keys, key), append(values, field.Metadata.Values()[i])
		}
	}
	field.Metadata = arrow.NewMetadata(keys, values)
	return field
}

// mapSchema is the schema with change done to its fields; the very same one if that changes
// nothing.
func mapSchema(schema *arrow.Schema, change func(arrow.Field) arrow.Field) *arrow.Schema {
	fields := mapAll(schema.Fields(), change)
	metadata := schema.Metadata()
	changed := arrow.NewSchema(fields, &metadata)
	if changed.Equal(schema) {
		return schema
	}
	return changed
}

func mapAll(fields []arrow.Field, change func(arrow.Field) arrow.Field) []arrow.Field {
	changed := make([]arrow.Field, len(fields))
	for i, field := range fields {
		changed[i] = change(field)
	}
	return changed
}

// mapFields is the type with change done to the fields below it. Types whose inner fields carry no
// metadata, run-end encoded ones and dictionaries, cannot name an extension there.
func mapFields(dataType arrow.DataType, change func(arrow.Field) arrow.Field) arrow.DataType {
	switch t := dataType.(type) {
	case *arrow.ListType:
		return arrow.ListOfField(change(t.ElemField()))
	case *arrow.LargeListType:
		return arrow.LargeListOfField(change(t.ElemField()))
	case *arrow.ListViewType:
		return arrow.ListViewOfField(change(t.ElemField()))
	case *arrow.LargeListViewType:
		return arrow.LargeListViewOfField(change(t.ElemField()))
	case *arrow.FixedSizeListType:
		return arrow.FixedSizeListOfField(t.Len(), change(t.ElemField()))
	case *arrow.MapType:
		mapped := arrow.MapOfFields(change(t.KeyField()), change(t.ItemField()))
		mapped.KeysSorted = t.KeysSorted
		return mapped
	case *arrow.StructType:
		return arrow.StructOf(mapAll(t.Fields(), change)...)
	case arrow.UnionType:
		return arrow.UnionOf(t.Mode(), mapAll(t.Fields(), change), t.TypeCodes())
	default:
		return dataType
	}
}

// withTypes is the batch, whose columns are of storage types, with the types of schema. It takes the
// batch over.
func withTypes(batch arrow.RecordBatch, schema *arrow.Schema) arrow.RecordBatch {
	defer batch.Release()
	columns := make([]arrow.Array, batch.NumCols())
	for i, column := range batch.Columns() {
		data := withType(column.Data(), schema.Field(i).Type)
		columns[i] = array.MakeFromData(data)
		data.Release()
	}
	defer func() {
		for _, column := range columns {
			column.Release()
		}
	}()
	return array.NewRecordBatch(schema, columns, batch.NumRows())
}

// withType is the data, of a storage type, as data of dataType: the same buffers, by another name.
func withType(data arrow.ArrayData, dataType arrow.DataType) arrow.ArrayData {
	if dictionary, ok := dictionaryOf(data).(*array.Data); ok {
		return array.NewDataWithDictionary(dataType, data.Len(), data.Buffers(), data.NullN(), data.Offset(), dictionary)
	}
	children := slices.Clone(data.Children())
	if nested, ok := storageType(dataType).(arrow.NestedType); ok {
		for i, field := range nested.Fields() {
			children[i] = withType(children[i], field.Type)
			defer children[i].Release()
		}
	}
	return array.NewData(dataType, data.Len(), data.Buffers(), children, data.NullN(), data.Offset())
}
