#include "ipc_file.h"

#include <arrow/c/bridge.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>
#include <arrow/record_batch.h>

#include <memory>
#include <string>

struct ipc_writer {
  std::shared_ptr<arrow::Schema> schema;
  std::shared_ptr<arrow::io::FileOutputStream> file;
  std::shared_ptr<arrow::ipc::RecordBatchWriter> writer;
};

namespace {

const char* say(const arrow::Status& status) {
  thread_local std::string text;
  if (status.ok()) return nullptr;
  text = status.ToString();
  return text.c_str();
}

arrow::Status read(const char* path, ArrowArrayStream* out) {
  ARROW_ASSIGN_OR_RAISE(auto file, arrow::io::ReadableFile::Open(path));
  ARROW_ASSIGN_OR_RAISE(auto reader, arrow::ipc::RecordBatchStreamReader::Open(file));
  return arrow::ExportRecordBatchReader(reader, out);
}

arrow::Status open(const char* path, ArrowSchema* schema, ipc_writer** out) {
  auto writer = std::make_unique<ipc_writer>();
  ARROW_ASSIGN_OR_RAISE(writer->schema, arrow::ImportSchema(schema));
  ARROW_ASSIGN_OR_RAISE(writer->file, arrow::io::FileOutputStream::Open(path));
  ARROW_ASSIGN_OR_RAISE(writer->writer,
                        arrow::ipc::MakeStreamWriter(writer->file, writer->schema));
  *out = writer.release();
  return arrow::Status::OK();
}

arrow::Status write(ipc_writer* writer, ArrowArray* batch) {
  ARROW_ASSIGN_OR_RAISE(auto imported, arrow::ImportRecordBatch(batch, writer->schema));
  return writer->writer->WriteRecordBatch(*imported);
}

arrow::Status close(std::unique_ptr<ipc_writer> writer) {
  ARROW_RETURN_NOT_OK(writer->writer->Close());
  return writer->file->Close();
}

}  // namespace

const char* ipc_read(const char* path, ArrowArrayStream* out) { return say(read(path, out)); }

const char* ipc_writer_open(const char* path, ArrowSchema* schema, ipc_writer** out) {
  return say(open(path, schema, out));
}

const char* ipc_writer_write(ipc_writer* writer, ArrowArray* batch) {
  return say(write(writer, batch));
}

const char* ipc_writer_close(ipc_writer* writer) {
  return say(close(std::unique_ptr<ipc_writer>(writer)));
}
