// Arrow C++: tables, readers and batches as streams of libdipc, and back. Nothing is copied.
// Needs Arrow 16 or later, and the C++ standard that its headers ask for.
//
//   to_stream(x)          an arrow::RecordBatchReader, Table or RecordBatch as a Stream
//   to_reader(stream)     a Stream as an arrow::RecordBatchReader
//   to_table(stream)      all of it
//   ArenaPool             an arrow::MemoryPool whose buffers are lent without a copy
//
// A provider may return readers and tables as they are, or an arrow::Result of one, and so may
// functions given to generate() return record batches.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_ARROW_HPP
#define DIPC_ARROW_HPP

#include <dipc/arrow_pool.hpp>
#include <dipc/arrow_status.hpp>
#include <dipc/generate.hpp>
#include <dipc/server.hpp>
#include <dipc/stream.hpp>

#include <arrow/c/bridge.h>
#include <arrow/record_batch.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/table.h>
#include <arrow/util/key_value_metadata.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dipc {

/// A schema of Arrow C++ as a C struct.
inline Result<Schema> to_schema(const arrow::Schema& source) {
  Schema schema;
  const arrow::Status done = arrow::ExportSchema(source, schema.get());
  if (!done.ok()) return from_arrow(done);
  return schema;
}

/// A batch of Arrow C++ as a device array, which shares its buffers.
inline Result<DeviceArray> to_array(const arrow::RecordBatch& batch) {
  DeviceArray array;
  const arrow::Status done =
      arrow::ExportDeviceRecordBatch(batch, batch.GetSyncEvent(), array.get());
  if (!done.ok()) return from_arrow(done);
  return array;
}

/// A batch of a stream as Arrow C++ has them, which shares the buffers.
///
/// @param schema  Of the stream.
/// @param mapper  Finds the memory manager of a device; the default knows the host, and the devices
///                that were registered with Arrow.
inline Result<std::shared_ptr<arrow::RecordBatch>> to_batch(
    DeviceArray&& array, std::shared_ptr<arrow::Schema> schema,
    const arrow::DeviceMemoryMapper& mapper = arrow::DefaultDeviceMemoryMapper) {
  auto batch = arrow::ImportDeviceRecordBatch(array.get(), std::move(schema), mapper);
  if (!batch.ok()) return from_arrow(batch.status());
  return *std::move(batch);
}

/// A Stream as a reader. Its failures are Arrow's statuses that carry libdipc's error: error_of()
/// gives it. The batches' custom metadata comes with ReadNext(). Close(), or destroying the reader,
/// before the end cancels the stream.
class StreamReader final : public arrow::RecordBatchReader {
 public:
  StreamReader(Stream stream, std::shared_ptr<arrow::Schema> schema,
               arrow::DeviceMemoryMapper mapper)
      : stream_(std::move(stream)), schema_(std::move(schema)), mapper_(std::move(mapper)) {}

  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }
  arrow::DeviceAllocationType device_type() const override {
    return static_cast<arrow::DeviceAllocationType>(stream_.device_type());
  }

  arrow::Status ReadNext(std::shared_ptr<arrow::RecordBatch>* out) override {
    auto array = stream_.next();
    if (!array) return to_arrow(array.error());
    out->reset();
    if (!*array) return arrow::Status::OK();
    return arrow::ImportDeviceRecordBatch(array->get(), schema_, mapper_).Value(out);
  }

  arrow::Result<arrow::RecordBatchWithMetadata> ReadNext() override {
    arrow::RecordBatchWithMetadata both;
    ARROW_RETURN_NOT_OK(ReadNext(&both.batch));
    // Streams that are not a client's have no metadata to ask for.
    const auto pairs = stream_.metadata();
    if (both.batch == nullptr || !pairs.ok() || pairs->empty()) return both;
    std::vector<std::string> keys;
    std::vector<std::string> values;
    for (const auto& [key, value] : *pairs) {
      keys.push_back(key);
      values.push_back(value);
    }
    both.custom_metadata = arrow::key_value_metadata(std::move(keys), std::move(values));
    return both;
  }

  arrow::Status Close() override {
    stream_.reset();
    return arrow::Status::OK();
  }

  /// The stream behind the reader, for its figures.
  [[nodiscard]] const Stream& stream() const noexcept { return stream_; }

 private:
  Stream stream_;
  std::shared_ptr<arrow::Schema> schema_;
  arrow::DeviceMemoryMapper mapper_;
};

/// A Stream as a reader; moved on success.
inline Result<std::shared_ptr<StreamReader>> to_reader(
    Stream&& stream, arrow::DeviceMemoryMapper mapper = arrow::DefaultDeviceMemoryMapper) {
  auto schema = stream.schema();
  if (!schema) return std::move(schema).error();
  auto imported = arrow::ImportSchema(schema->get());
  if (!imported.ok()) return from_arrow(imported.status());
  return std::make_shared<StreamReader>(std::move(stream), *std::move(imported),
                                        std::move(mapper));
}

/// All of a Stream as a table, whose buffers are those of the stream's batches.
inline Result<std::shared_ptr<arrow::Table>> to_table(Stream&& stream) {
  auto reader = to_reader(std::move(stream));
  if (!reader) return std::move(reader).error();
  auto table = (*reader)->ToTable();
  if (!table.ok()) return from_arrow(table.status());
  return *std::move(table);
}

template <>
struct BatchTraits<std::shared_ptr<arrow::RecordBatch>> {
  static Result<DeviceArray> convert(const std::shared_ptr<arrow::RecordBatch>& batch) {
    if (batch == nullptr) return DeviceArray();
    return to_array(*batch);
  }
};

template <>
struct BatchTraits<arrow::RecordBatchWithMetadata> {
  static Result<DeviceArray> convert(const arrow::RecordBatchWithMetadata& both) {
    auto array = BatchTraits<std::shared_ptr<arrow::RecordBatch>>::convert(both.batch);
    if (!array || !*array || both.custom_metadata == nullptr) return array;
    Metadata metadata;
    for (std::int64_t i = 0; i < both.custom_metadata->size(); i++) {
      metadata.emplace_back(both.custom_metadata->key(i), both.custom_metadata->value(i));
    }
    auto done = set_metadata(*array, metadata);
    if (!done) return std::move(done).error();
    return array;
  }
};

template <class T>
struct BatchTraits<arrow::Result<T>> {
  static Result<DeviceArray> convert(arrow::Result<T>&& batch) {
    if (!batch.ok()) return from_arrow(batch.status());
    return BatchTraits<T>::convert(*std::move(batch));
  }
};

namespace detail {

/// Fails where a batch of a reader has other columns than the reader: they would be read by the
/// names and types of its schema.
inline arrow::Status ensure_fits(const arrow::Schema& stream, const arrow::Schema& batch) {
  if (&stream == &batch || batch.Equals(stream)) return arrow::Status::OK();
  const auto declared = to_schema(stream);
  if (!declared) return to_arrow(declared.error());
  const auto given = to_schema(batch);
  if (!given) return to_arrow(given.error());
  const auto checked = call([&](dipc_error** error) {
    return dipc_batch_check_schema(declared->get(), given->get(), error);
  });
  return checked ? arrow::Status::OK() : to_arrow(checked.error());
}

}  // namespace detail

template <>
struct StreamTraits<std::shared_ptr<arrow::RecordBatchReader>> {
  static Result<Stream> convert(std::shared_ptr<arrow::RecordBatchReader> reader) {
    if (reader == nullptr) return Error(Status::null_argument, "the reader is a null pointer");
    auto schema = to_schema(*reader->schema());
    if (!schema) return std::move(schema).error();
    const auto device_type = static_cast<ArrowDeviceType>(reader->device_type());
    return generate(
        *std::move(schema),
        [reader = std::move(reader),
         knows_metadata = true]() mutable -> arrow::Result<arrow::RecordBatchWithMetadata> {
          ARROW_ASSIGN_OR_RAISE(auto both, read(*reader, knows_metadata));
          if (both.batch != nullptr) {
            ARROW_RETURN_NOT_OK(detail::ensure_fits(*reader->schema(), *both.batch->schema()));
          }
          return both;
        },
        device_type);
  }

 private:
  static arrow::Result<arrow::RecordBatchWithMetadata> read(arrow::RecordBatchReader& reader,
                                                            bool& knows_metadata) {
    if (knows_metadata) {
      auto both = reader.ReadNext();
      if (both.ok() || !both.status().IsNotImplemented()) return both;
      // Readers without metadata do not have this function.
      knows_metadata = false;
    }
    arrow::RecordBatchWithMetadata plain;
    ARROW_RETURN_NOT_OK(reader.ReadNext(&plain.batch));
    return plain;
  }
};

template <>
struct StreamTraits<std::shared_ptr<arrow::Table>> {
  static Result<Stream> convert(std::shared_ptr<arrow::Table> table) {
    if (table == nullptr) return Error(Status::null_argument, "the table is a null pointer");
    return StreamTraits<std::shared_ptr<arrow::RecordBatchReader>>::convert(
        std::make_shared<arrow::TableBatchReader>(std::move(table)));
  }
};

template <>
struct StreamTraits<std::shared_ptr<arrow::RecordBatch>> {
  static Result<Stream> convert(const std::shared_ptr<arrow::RecordBatch>& batch) {
    if (batch == nullptr) return Error(Status::null_argument, "the batch is a null pointer");
    auto reader = arrow::RecordBatchReader::Make({batch}, batch->schema(), batch->device_type());
    if (!reader.ok()) return from_arrow(reader.status());
    return StreamTraits<std::shared_ptr<arrow::RecordBatchReader>>::convert(*std::move(reader));
  }
};

template <>
struct StreamTraits<std::shared_ptr<StreamReader>> {
  static Result<Stream> convert(std::shared_ptr<StreamReader> reader) {
    return StreamTraits<std::shared_ptr<arrow::RecordBatchReader>>::convert(std::move(reader));
  }
};

template <class T>
struct StreamTraits<arrow::Result<T>> {
  static Result<Stream> convert(arrow::Result<T>&& source) {
    if (!source.ok()) return from_arrow(source.status());
    return StreamTraits<T>::convert(*std::move(source));
  }
};

}  // namespace dipc

#endif  // DIPC_ARROW_HPP
