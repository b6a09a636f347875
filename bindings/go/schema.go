package dipc

// #include "shim.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"
)

// exportSchema fills out, which is cleared.
func exportSchema(schema *arrow.Schema, out *C.struct_ArrowSchema) (err error) {
	// The exporter panics at types that the C data interface does not have.
	defer func() {
		if reason := recover(); reason != nil {
			err = &Error{Status: ErrInvalidData, Text: fmt.Sprintf("the schema cannot be sent: %v", reason)}
		}
	}()
	cdata.ExportArrowSchema(mapSchema(schema, storageField), (*cdata.CArrowSchema)(unsafe.Pointer(out)))
	return nil
}

// importSchema takes what is in, and releases it in every case. stored has the storage in place of each extension type,
// as batches come; schema has those that the program has registered, and is the same schema if there are none.
func importSchema(in *C.struct_ArrowSchema) (stored, schema *arrow.Schema, err error) {
	defer C.dipcgo_schema_release(in)
	defer func() {
		if reason := recover(); reason != nil {
			err = unreadable(fmt.Errorf("%v", reason))
		}
	}()
	ordered := orderedDictionaries(in, nil)
	stored, err = cdata.ImportCArrowSchema((*cdata.CArrowSchema)(unsafe.Pointer(in)))
	if err != nil {
		return nil, nil, unreadable(err)
	}
	restoreOrdered(stored.Fields(), ordered)
	return stored, mapSchema(stored, extensionField), nil
}

// unreadable is the error for what arrow-go cannot take in.
func unreadable(reason error) error {
	return &Error{
		Status: ErrInvalidData,
		Text:   "arrow-go cannot read what was sent: " + reason.Error(),
		causes: []error{reason},
	}
}

// orderedDictionaries lists, depth first, whether each dictionary of a schema is ordered. The importer of cdata looks
// for this flag at the values, but the C data interface has it at the indices (fault 3 of upstream_test.go).
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
	switch t := dataType.(type) {
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
