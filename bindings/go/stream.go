package dipc

// #include "shim.h"
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
)

// stream is the C side of a reader: what must be freed when the reader is released or collected. It has no reference to
// the reader. One goroutine at a time.
type stream struct {
	object *C.struct_ArrowDeviceArrayStream // nil once closed
	batch  *C.struct_ArrowDeviceArray       // where the library puts the next one
	cancel *token
	ready  *watched      // nil until something is waited for
	spin   time.Duration // how long to look before each wait
	ended  *atomic.Bool  // set if the library does not see cancel: whether it was triggered

	blocked *atomic.Bool // whether the schema of an exchange is waited for in C

	stored, schema *arrow.Schema // as importSchema gives them
}

// close cancels what has not arrived and frees everything; batches that were handed out stay valid.
func (s *stream) close() {
	if s.object == nil {
		return
	}
	s.ready.close()
	C.dipcgo_stream_free(s.object)
	C.free(unsafe.Pointer(s.batch))
	s.object, s.batch = nil, nil
	s.cancel.free()
}

// readSchema reads the schema, which has arrived already.
func (s *stream) readSchema() error {
	if s.object.device_type != C.ARROW_DEVICE_CPU {
		return &Error{Status: ErrUnsupported, Text: fmt.Sprintf(
			"the batches lie on a device of type %d, and arrow-go reads the host's memory alone: ask for them there "+
				"(WithDevice(Host)), or for a C stream (GetStream)", s.object.device_type)}
	}
	described := (*C.struct_ArrowSchema)(C.calloc(1, C.sizeof_struct_ArrowSchema))
	defer C.free(unsafe.Pointer(described))
	var failure *C.dipc_error
	err := check(C.dipcgo_stream_schema(s.object, described, &failure), failure)
	if err == nil {
		s.stored, s.schema, err = importSchema(described)
	}
	return err
}

// waitSchema is readSchema for a schema that may not have come. It blocks in C, and the token ends that, too.
func (s *stream) waitSchema() error {
	s.blocked.Store(true)
	defer s.blocked.Store(false)
	if s.ended.Load() {
		return &Error{Status: ErrCancelled, Text: "the reader was ended before the table"}
	}
	return s.readSchema()
}

// next gives the next batch, or nil at the end.
func (s *stream) next() (arrow.RecordBatch, error) {
	var metadataBytes C.size_t
	for {
		if s.ended != nil && s.ended.Load() {
			return nil, &Error{Status: ErrCancelled, Text: "the reader was ended before the table"}
		}
		var failure *C.dipc_error
		status := C.dipcgo_stream_next(s.object, s.batch, &metadataBytes, &failure)
		if err := check(status, failure); err != nil {
			return nil, err
		}
		if status == C.DIPC_OK {
			break
		}
		if err := s.wait(); err != nil {
			return nil, err
		}
	}
	if s.schema == nil { // it has come with the first batch or the end
		if err := s.readSchema(); err != nil {
			C.dipcgo_array_release(&s.batch.array)
			return nil, err
		}
	}
	if s.batch.array.release == nil {
		return nil, nil
	}
	batch, err := s.importBatch(&s.batch.array)
	if err != nil || metadataBytes == 0 {
		return batch, err
	}
	defer batch.Release()
	metadata, err := s.metadata(metadataBytes)
	if err != nil {
		return nil, err
	}
	return array.NewRecordBatchWithMetadata(s.schema, batch.Columns(), batch.NumRows(), metadata), nil
}

// wait returns once next may find something, or its token was triggered.
func (s *stream) wait() error {
	if s.ready == nil {
		return s.watch() // the descriptor of a stream is readable at first
	}
	for begun := time.Now(); s.spin > 0 && time.Since(begun) < s.spin; {
		if s.ready.isReadable() {
			return nil
		}
	}
	return s.ready.wait()
}

func (s *stream) watch() error {
	var fd C.int
	var failure *C.dipc_error
	err := check(C.dipc_stream_fd(s.object, &fd, &failure), failure)
	if err == nil {
		s.ready, err = watch(fd)
	}
	return err
}

// importBatch takes in over; its buffers go back when the batch is released.
func (s *stream) importBatch(in *C.struct_ArrowArray) (batch arrow.RecordBatch, err error) {
	defer func() {
		// An import that fails may already have taken over the array. In that case
		// dipcgo_array_release does nothing.
		if reason := recover(); reason != nil {
			err = unreadable(fmt.Errorf("%v", reason))
		}
		if err != nil {
			C.dipcgo_array_release(in)
		}
	}()
	batch, err = cdata.ImportCRecordBatchWithSchema((*cdata.CArrowArray)(unsafe.Pointer(in)), s.stored)
	if err != nil {
		return nil, unreadable(err)
	}
	if s.stored != s.schema {
		batch = withTypes(batch, s.schema)
	}
	return batch, nil
}

// headers reads the headers of the server's answer.
func (s *stream) headers() (Headers, error) {
	return readHeaders(func(out **C.dipc_headers, failure **C.dipc_error) C.dipc_status {
		return C.dipc_stream_headers(s.object, out, failure)
	})
}

// metadata reads the custom metadata of the batch that came last.
func (s *stream) metadata(length C.size_t) (arrow.Metadata, error) {
	encoded := make([]byte, length)
	var failure *C.dipc_error
	status := C.dipc_stream_metadata(s.object, (*C.uint8_t)(pointer(encoded)), length, &length, &failure)
	if err := check(status, failure); err != nil {
		return arrow.Metadata{}, err
	}
	return decodeMetadata(encoded)
}

// encodeMetadata writes pairs as ArrowSchema encodes them.
func encodeMetadata(metadata arrow.Metadata) []byte {
	encoded := binary.NativeEndian.AppendUint32(nil, uint32(metadata.Len()))
	for i, key := range metadata.Keys() {
		for _, text := range []string{key, metadata.Values()[i]} {
			encoded = binary.NativeEndian.AppendUint32(encoded, uint32(len(text)))
			encoded = append(encoded, text...)
		}
	}
	return encoded
}

// decodeMetadata reads pairs as ArrowSchema encodes them: their number, then for each text its length
// and its bytes.
func decodeMetadata(encoded []byte) (arrow.Metadata, error) {
	broken := false
	number := func() int {
		if len(encoded) < 4 {
			broken = true
			return 0
		}
		n := int32(binary.NativeEndian.Uint32(encoded))
		encoded = encoded[4:]
		if n < 0 || int(n) > len(encoded) {
			broken = true
			return 0
		}
		return int(n)
	}
	text := func() string {
		n := number()
		read := string(encoded[:n])
		encoded = encoded[n:]
		return read
	}
	pairs := number()
	keys, values := make([]string, 0, pairs), make([]string, 0, pairs)
	for range pairs {
		keys, values = append(keys, text()), append(values, text())
	}
	if broken {
		return arrow.Metadata{}, unreadable(errors.New("the metadata of a batch is cut off"))
	}
	return arrow.NewMetadata(keys, values), nil
}

// stats reads the stream's figures so far.
func (s *stream) stats() (StreamStats, error) {
	var stats StreamStats
	var failure *C.dipc_error
	status := readStats(&failure, func(stat C.int32_t, out *C.uint64_t, failure **C.dipc_error) C.dipc_status {
		return C.dipc_stream_stat(s.object, stat, out, failure)
	}, map[C.int32_t]*uint64{
		C.DIPC_STREAM_STAT_ROWS:           &stats.Rows,
		C.DIPC_STREAM_STAT_BATCHES:        &stats.Batches,
		C.DIPC_STREAM_STAT_BYTES_LENT:     &stats.BytesLent,
		C.DIPC_STREAM_STAT_BYTES_COPIED:   &stats.BytesCopied,
		C.DIPC_STREAM_STAT_BYTES_RECEIVED: &stats.BytesReceived,

		C.DIPC_STREAM_STAT_BYTES_COPIED_ON_DEVICE: &stats.BytesCopiedOnDevice,
		C.DIPC_STREAM_STAT_BYTES_STAGED:           &stats.BytesStaged,

		C.DIPC_STREAM_STAT_BATCHES_HERE: &stats.BatchesHere,
	})
	return stats, check(status, failure)
}
