package dipc

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
)

// A handler in another language may answer with any table.
func TestOnlyListsAreRead(t *testing.T) {
	binary, text, number := arrow.BinaryTypes.Binary, arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64
	for _, c := range []struct {
		types  []arrow.DataType
		isList bool
	}{
		{[]arrow.DataType{binary, arrow.ListOf(text), number, number}, true},
		{[]arrow.DataType{binary, arrow.ListOf(text), number}, false},
		{[]arrow.DataType{text, arrow.ListOf(text), number, number}, false},
		{[]arrow.DataType{binary, arrow.ListOf(binary), number, number}, false},
		{[]arrow.DataType{binary, arrow.ListOf(text), number, text}, false},
	} {
		fields := make([]arrow.Field, len(c.types))
		for i, dataType := range c.types {
			fields[i].Type = dataType
		}
		if isListing(arrow.NewSchema(fields, nil)) != c.isList {
			t.Errorf("%v", c.types)
		}
	}
}
