package dipc

// #include "shim.h"
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// exportSchema fills out, which is cleared.
func exportSchema(schema *arrow.Schema, out *C.struct_ArrowSchema) (err error) {
	// The exporter panics at types that the C data interface does not have.
	defer func() {
		if reason := recover(); reason != nil {
			err = &Error{Status: ErrInvalidData, Text: fmt.Sprintf("the schema cannot be sent: %v", reason)}
		}
	}()
	cdata.ExportArrowSchema(storageSchema(schema), (*cdata.CArrowSchema)(unsafe.Pointer(out)))
	return nil
}

// importSchema takes what is in, and releases it in every case.
func importSchema(in *C.struct_ArrowSchema) (schema *arrow.Schema, err error) {
	defer C.dipcgo_schema_release(in)
	defer func() {
		if reason := recover(); reason != nil {
			err = unreadable(fmt.Errorf("%v", reason))
		}
	}()
	ordered := orderedDictionaries(in, nil)
	schema, err = cdata.ImportCArrowSchema((*cdata.CArrowSchema)(unsafe.Pointer(in)))
	if err != nil {
		return nil, unreadable(err)
	}
	restoreOrdered(schema.Fields(), ordered)
	return schema, nil
}

// unreadable is the error for what arrow-go cannot take in.
func unreadable(reason error) error {
	return &Error{
		Status: ErrInvalidData,
		Text:   "arrow-go cannot read what the server sent: " + reason.Error(),
		causes: []error{reason},
	}
}

// orderedDictionaries lists, depth first, whether each dictionary of a schema is ordered. The
// importer of cdata asks the values for it, where the C data interface has it at the indices.
func orderedDictionaries(in *C.struct_ArrowSchema, found []bool) []bool {
	if in.dictionary != nil {
		found = append(found, in.flags&C.ARROW_FLAG_DICTIONARY_ORDERED != 0)
		found = orderedDictionaries(in.dictionary, found)
	}
	if in.n_children > 0 {
		for _, child := range unsafe.Slice(in.children, in.n_children) {
			found = orderedDictionaries(child, found)
		}
	}
	return found
}

// restoreOrdered sets what orderedDictionaries found. The types are this import's own.
func restoreOrdered(fields []arrow.Field, ordered []bool) []bool {
	for _, field := range fields {
		ordered = restoreOrderedType(field.Type, ordered)
	}
	return ordered
}

func restoreOrderedType(dataType arrow.DataType, ordered []bool) []bool {
	switch t := storageType(dataType).(type) {
	case *arrow.DictionaryType:
		if len(ordered) == 0 {
			return nil
		}
		t.Ordered = ordered[0]
		return restoreOrderedType(t.ValueType, ordered[1:])
	case arrow.NestedType:
		return restoreOrdered(t.Fields(), ordered)
	default:
		return ordered
	}
}

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

// storageSchema is the schema with extension types as their storage and the metadata that names
// them, which is how the C data interface has them. The exporter of cdata does so itself, but leaves
// out the children and the dictionary of the storage.
func storageSchema(schema *arrow.Schema) *arrow.Schema {
	fields := storageFields(schema.Fields())
	metadata := schema.Metadata()
	return arrow.NewSchema(fields, &metadata)
}

func storageFields(fields []arrow.Field) []arrow.Field {
	changed := make([]arrow.Field, len(fields))
	for i, field := range fields {
		changed[i] = storageField(field)
	}
	return changed
}

func storageField(field arrow.Field) arrow.Field {
	if extension, ok := field.Type.(arrow.ExtensionType); ok {
		field.Metadata = extensionMetadata(field.Metadata, extension)
		field.Type = extension.StorageType()
	}
	field.Type = storageOf(field.Type)
	return field
}

// extensionMetadata is metadata with what names the extension, unless it is there already.
func extensionMetadata(metadata arrow.Metadata, extension arrow.ExtensionType) arrow.Metadata {
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

// storageOf replaces the extension types inside a type.
func storageOf(dataType arrow.DataType) arrow.DataType {
	switch t := dataType.(type) {
	case *arrow.ListType:
		return arrow.ListOfField(storageField(t.ElemField()))
	case *arrow.LargeListType:
		return arrow.LargeListOfField(storageField(t.ElemField()))
	case *arrow.ListViewType:
		return arrow.ListViewOfField(storageField(t.ElemField()))
	case *arrow.LargeListViewType:
		return arrow.LargeListViewOfField(storageField(t.ElemField()))
	case *arrow.FixedSizeListType:
		return arrow.FixedSizeListOfField(t.Len(), storageField(t.ElemField()))
	case *arrow.StructType:
		return arrow.StructOf(storageFields(t.Fields())...)
	default:
		return dataType
	}
}
