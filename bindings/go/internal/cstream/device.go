package cstream

// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdint.h>
// #include <stdlib.h>
// #include <string.h>
// #include <dipc.h>
//
// // A stream of one batch with one column "n" of int64, whose values lie at an address of CUDA device 0.
// struct table {
//   struct ArrowArray column;
//   struct ArrowArray *children[1];
//   const void *buffers[3];
//   int64_t rows;
// };
//
// static void release_schema(struct ArrowSchema *schema) {
//   for (int64_t i = 0; i < schema->n_children; i++) {
//     schema->children[i]->release(schema->children[i]);
//     free(schema->children[i]);
//   }
//   free(schema->children);
//   schema->release = NULL;
// }
//
// static int get_schema(struct ArrowDeviceArrayStream *stream, struct ArrowSchema *out) {
//   (void)stream;
//   memset(out, 0, sizeof *out);
//   out->format = "+s";
//   out->name = "";
//   out->n_children = 1;
//   out->children = calloc(1, sizeof *out->children);
//   out->children[0] = calloc(1, sizeof *out->children[0]);
//   out->children[0]->format = "l";
//   out->children[0]->name = "n";
//   out->children[0]->release = release_schema;
//   out->release = release_schema;
//   return 0;
// }
//
// static void release_column(struct ArrowArray *array) { array->release = NULL; }
//
// static void release_batch(struct ArrowArray *array) {
//   struct table *table = array->private_data;
//   if (table->column.release) table->column.release(&table->column);
//   array->release = NULL;
//   free(table);
// }
//
// static int get_next(struct ArrowDeviceArrayStream *stream, struct ArrowDeviceArray *out) {
//   struct table *table = stream->private_data;
//   memset(out, 0, sizeof *out);
//   if (table == NULL) return 0;
//   stream->private_data = NULL;
//   table->children[0] = &table->column;
//   table->column.length = table->rows;
//   table->column.n_buffers = 2;
//   table->column.buffers = &table->buffers[1];
//   table->column.release = release_column;
//   out->array.length = table->rows;
//   out->array.n_buffers = 1;
//   out->array.buffers = &table->buffers[0];
//   out->array.n_children = 1;
//   out->array.children = table->children;
//   out->array.release = release_batch;
//   out->array.private_data = table;
//   out->device_type = ARROW_DEVICE_CUDA;
//   return 0;
// }
//
// static const char *get_last_error(struct ArrowDeviceArrayStream *stream) { (void)stream; return NULL; }
//
// static void release_stream(struct ArrowDeviceArrayStream *stream) {
//   free(stream->private_data);
//   stream->release = NULL;
// }
//
// static void fill(struct ArrowDeviceArrayStream *out, uintptr_t address, int64_t rows) {
//   struct table *table = calloc(1, sizeof *table);
//   table->rows = rows;
//   table->buffers[2] = (const void *)address;
//   out->device_type = ARROW_DEVICE_CUDA;
//   out->get_schema = get_schema;
//   out->get_next = get_next;
//   out->get_last_error = get_last_error;
//   out->release = release_stream;
//   out->private_data = table;
// }
//
// // Copies to an address of CUDA device 0, as a library does that has a context of its own.
// static int upload(uintptr_t to, const void *from, size_t size) {
//   void *driver = dlopen("libcuda.so.1", RTLD_NOW);
//   if (driver == NULL) return -1;
//   int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
//   int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
//   int (*push)(void *) = (int (*)(void *))dlsym(driver, "cuCtxPushCurrent_v2");
//   int (*pop)(void **) = (int (*)(void **))dlsym(driver, "cuCtxPopCurrent_v2");
//   int (*copy)(uint64_t, uint64_t, size_t) = (int (*)(uint64_t, uint64_t, size_t))dlsym(driver, "cuMemcpy");
//   void *context = NULL;
//   if (init(0) || retain(&context, 0) || push(context)) return -2;
//   int status = copy((uint64_t)to, (uint64_t)(uintptr_t)from, size);
//   pop(&context);
//   return status;
// }
import "C"

import (
	"fmt"
	"unsafe"
)

// FillDevice makes a stream at out of one batch with one column "n" of int64, whose values lie at an
// address of CUDA device 0.
func FillDevice(out unsafe.Pointer, address uintptr, rows int) {
	C.fill((*C.struct_ArrowDeviceArrayStream)(out), C.uintptr_t(address), C.int64_t(rows))
}

// Upload copies values to an address of CUDA device 0.
func Upload(address uintptr, values []int64) error {
	size := C.size_t(len(values)) * 8
	if status := C.upload(C.uintptr_t(address), unsafe.Pointer(&values[0]), size); status != 0 {
		return fmt.Errorf("the CUDA driver says %d", int(status))
	}
	return nil
}
