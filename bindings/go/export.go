package dipc

// #include "shim.h"
import "C"

import (
	"runtime"
	"runtime/cgo"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// exportBatch fills out with the buffers of batch, without a copy, and its custom metadata, and retains batch until out
// is released. Then released is called, unless it is nil.
//
// The exporter of cdata is not used for arrays: it puts pointers to the Go heap into C memory without
// pinning what they point to, which cgo forbids, and it gives a sliced struct its offset twice (faults 1
// and 2 of upstream_test.go).
func exportBatch(batch arrow.RecordBatch, out *C.struct_ArrowDeviceArray, released func()) error {
	need := blockSize{arrays: 1}
	columns := batch.Columns()
	need.children += len(columns)
	need.buffers++ // rows of a batch have no validity
	for _, column := range columns {
		need.add(column.Data())
	}
	w := writer{hold: &held{batch: batch, released: released}}
	if !C.dipcgo_block_new(C.size_t(need.arrays), C.size_t(need.children), C.size_t(need.buffers),
		C.size_t(need.sizes), &w.block) {
		return &Error{Status: ErrOutOfMemory, Text: "no memory for the description of a batch"}
	}
	finished := false
	defer func() {
		// The caller reports a panic; here nothing may stay pinned.
		if !finished {
			w.hold.pins.Unpin()
			C.dipcgo_block_free(&w.block)
		}
	}()
	w.arrays = unsafe.Slice(w.block.arrays, need.arrays)
	w.children = unsafe.Slice(w.block.children, need.children)
	w.buffers = unsafe.Slice(w.block.buffers, need.buffers)
	w.sizes = unsafe.Slice(w.block.sizes, need.sizes)

	root := w.array()
	root.length = C.int64_t(batch.NumRows())
	w.setBuffers(root, w.takeBuffers(1))
	children := w.takeChildren(root, len(columns))
	for i, column := range columns {
		children[i] = w.write(column.Data())
	}
	batch.Retain()
	finished = true
	C.dipcgo_block_finish(&w.block, C.size_t(need.arrays), C.uintptr_t(cgo.NewHandle(w.hold)), &out.array)
	out.device_type = C.ARROW_DEVICE_CPU
	out.device_id = -1
	return annotate(batch, out)
}

// annotate gives an exported batch the custom metadata of the Go one.
func annotate(batch arrow.RecordBatch, out *C.struct_ArrowDeviceArray) error {
	described, ok := batch.(arrow.RecordBatchWithMetadata)
	if !ok || described.Metadata().Len() == 0 {
		return nil
	}
	encoded := encodeMetadata(described.Metadata())
	var failure *C.dipc_error
	status := C.dipc_batch_set_metadata(out, (*C.uint8_t)(pointer(encoded)), C.size_t(len(encoded)), &failure)
	err := check(status, failure)
	if err != nil {
		C.dipcgo_array_release(&out.array)
	}
	return err
}

// held keeps what an exported batch points to from being moved or collected.
type held struct {
	batch    arrow.RecordBatch
	pins     runtime.Pinner
	released func()
}

//export dipcgoUnhold
func dipcgoUnhold(handle C.uintptr_t) {
	defer shield("releasing a batch")
	hold := take[*held](handle)
	hold.pins.Unpin()
	hold.batch.Release()
	if hold.released != nil {
		hold.released()
	}
}

// blockSize counts what the C structs of arrays need.
type blockSize struct{ arrays, children, buffers, sizes int }

func (s *blockSize) add(data arrow.ArrayData) {
	buffers := exportedBuffers(data)
	s.arrays++
	s.buffers += len(buffers)
	if isView(data) {
		s.buffers++
		s.sizes += variadic(len(buffers))
	}
	s.children += len(data.Children())
	for _, child := range data.Children() {
		s.add(child)
	}
	if dictionary := dictionaryOf(data); dictionary != nil {
		s.add(dictionary)
	}
}

// writer hands out the parts of a block, one after the other.
type writer struct {
	block    C.dipcgo_block
	arrays   []C.struct_ArrowArray
	children []*C.struct_ArrowArray
	buffers  []unsafe.Pointer
	sizes    []C.int64_t
	hold     *held
}

func (w *writer) array() *C.struct_ArrowArray {
	array := &w.arrays[0]
	w.arrays = w.arrays[1:]
	return array
}

func (w *writer) takeChildren(array *C.struct_ArrowArray, n int) []*C.struct_ArrowArray {
	taken := w.children[:n]
	w.children = w.children[n:]
	array.n_children = C.int64_t(n)
	if n > 0 {
		array.children = &taken[0]
	}
	return taken
}

func (w *writer) takeBuffers(n int) []unsafe.Pointer {
	taken := w.buffers[:n]
	w.buffers = w.buffers[n:]
	return taken
}

func (w *writer) setBuffers(array *C.struct_ArrowArray, buffers []unsafe.Pointer) {
	array.n_buffers = C.int64_t(len(buffers))
	if len(buffers) > 0 {
		array.buffers = &buffers[0]
	}
}

// write describes data. The data of arrow-go has the layout of the C data interface: the offset of an array applies to
// its children too, which are not sliced.
func (w *writer) write(data arrow.ArrayData) *C.struct_ArrowArray {
	array := w.array()
	array.length = C.int64_t(data.Len())
	array.offset = C.int64_t(data.Offset())

	given := exportedBuffers(data)
	n := len(given)
	if isView(data) {
		n++
	}
	buffers := w.takeBuffers(n)
	for i, buffer := range given {
		if buffer == nil || buffer.Len() == 0 {
			buffers[i] = unsafe.Pointer(&C.dipcgo_nothing)
			continue
		}
		first := unsafe.Pointer(&buffer.Bytes()[0])
		w.hold.pins.Pin(first)
		buffers[i] = first
	}
	if isView(data) {
		w.writeSizes(given, buffers)
	}
	switch {
	case storageID(data) == arrow.NULL:
		array.null_count = array.length
	case !hasValidity(data) || len(given) == 0:
	case given[0] == nil || given[0].Len() == 0:
		buffers[0] = nil
	default:
		array.null_count = C.int64_t(data.NullN())
	}
	w.setBuffers(array, buffers)

	children := w.takeChildren(array, len(data.Children()))
	for i, child := range data.Children() {
		children[i] = w.write(child)
	}
	if dictionary := dictionaryOf(data); dictionary != nil {
		array.dictionary = w.write(dictionary)
	}
	return array
}

// writeSizes puts the lengths of the variadic buffers of views into the buffer after them.
func (w *writer) writeSizes(given []*memory.Buffer, buffers []unsafe.Pointer) {
	n := variadic(len(given))
	taken := w.sizes[:n]
	w.sizes = w.sizes[n:]
	buffers[len(given)] = unsafe.Pointer(&C.dipcgo_nothing)
	if n == 0 {
		return
	}
	for i, buffer := range given[len(given)-n:] {
		if buffer != nil {
			taken[i] = C.int64_t(buffer.Len())
		}
	}
	buffers[len(given)] = unsafe.Pointer(&taken[0])
}

// exportedBuffers is the buffers of data that the C data interface has: arrow-go keeps the place of
// the validity for every type.
func exportedBuffers(data arrow.ArrayData) []*memory.Buffer {
	buffers := data.Buffers()
	if !hasValidity(data) && len(buffers) > 0 {
		return buffers[1:]
	}
	return buffers
}

// variadic is how many of the n buffers of views hold their bytes: all after validity and views.
func variadic(n int) int { return max(n-2, 0) }

func storageID(data arrow.ArrayData) arrow.Type { return storageType(data.DataType()).ID() }

func hasValidity(data arrow.ArrayData) bool {
	switch storageID(data) {
	case arrow.NULL, arrow.SPARSE_UNION, arrow.DENSE_UNION, arrow.RUN_END_ENCODED:
		return false
	default:
		return true
	}
}

func isView(data arrow.ArrayData) bool {
	id := storageID(data)
	return id == arrow.STRING_VIEW || id == arrow.BINARY_VIEW
}

func dictionaryOf(data arrow.ArrayData) arrow.ArrayData {
	if storageID(data) != arrow.DICTIONARY {
		return nil
	}
	return data.Dictionary()
}
