// Streams of record batches: Stream, wherever its arrays lie, and HostStream, on the host.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_STREAM_HPP
#define DIPC_STREAM_HPP

#include <dipc/detail.hpp>
#include <dipc/headers.hpp>
#include <dipc/schema.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace dipc {

/// A figure of a stream of Client::get().
enum class StreamStat : std::int32_t {
  rows = DIPC_STREAM_STAT_ROWS,                      ///< Rows handed out.
  batches = DIPC_STREAM_STAT_BATCHES,                ///< Record batches handed out.
  bytes_lent = DIPC_STREAM_STAT_BYTES_LENT,          ///< Lent by the server, and mapped.
  bytes_copied = DIPC_STREAM_STAT_BYTES_COPIED,      ///< Copied in this process.
  bytes_received = DIPC_STREAM_STAT_BYTES_RECEIVED,  ///< Come through the connection.
  /// Copied in this process on a device, or from one to another.
  bytes_copied_on_device = DIPC_STREAM_STAT_BYTES_COPIED_ON_DEVICE,
  /// Copied in this process between the host and a device.
  bytes_staged = DIPC_STREAM_STAT_BYTES_STAGED,
  /// Record batches that the next calls give without waiting for the server.
  batches_here = DIPC_STREAM_STAT_BATCHES_HERE,
};

namespace detail {

/// What a stream of generate() failed with. A callback gives an errno and a text only.
struct GeneratedError {
  std::optional<Error> error;

  static const char* get_last_error(ArrowDeviceArrayStream* stream) {
    const Error* error = of(*stream);
    return error == nullptr ? nullptr : error->text().data();
  }

  /// The error of a stream of generate(); NULL where it has not failed, and for other streams.
  static const Error* of(const ArrowDeviceArrayStream& stream) noexcept {
    if (stream.get_last_error != &GeneratedError::get_last_error) return nullptr;
    const auto& self = *static_cast<const GeneratedError*>(stream.private_data);
    return self.error.has_value() ? &*self.error : nullptr;
  }
  static const Error* of(const ArrowArrayStream&) noexcept { return nullptr; }
};

/// The functions of dipc.h for one kind of stream.
template <class Raw>
struct StreamFunctions;

template <>
struct StreamFunctions<ArrowDeviceArrayStream> {
  static constexpr auto* status = &dipc_stream_status;
  static constexpr auto* metadata = &dipc_stream_metadata;
  static constexpr auto* headers = &dipc_stream_headers;
  static constexpr auto* stat = &dipc_stream_stat;
  static constexpr auto* fd = &dipc_stream_fd;
  static constexpr auto* try_next = &dipc_stream_try_next;
};

template <>
struct StreamFunctions<ArrowArrayStream> {
  static constexpr auto* status = &dipc_host_stream_status;
  static constexpr auto* metadata = &dipc_host_stream_metadata;
  static constexpr auto* headers = &dipc_host_stream_headers;
  static constexpr auto* stat = &dipc_host_stream_stat;
  static constexpr auto* fd = &dipc_host_stream_fd;
  static constexpr auto* try_next = &dipc_host_stream_try_next;
};

inline Error released_stream() {
  return Error(Status::invalid_argument,
               "the stream is released: it was moved from, closed, or never filled");
}

template <bool Throws, class S>
class BatchIterator {
 public:
  using Batch = typename S::Batch;
  using iterator_category = std::input_iterator_tag;
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;
  using pointer = Batch*;
  using reference = Batch&;

  BatchIterator() noexcept = default;
  explicit BatchIterator(S* stream) : stream_(stream) { ++*this; }

  [[nodiscard]] Batch& operator*() noexcept { return batch_; }
  [[nodiscard]] Batch* operator->() noexcept { return &batch_; }
  BatchIterator& operator++() {
    auto next = stream_->next();
    if (!next) raise<Throws>(next.error());
    batch_ = *std::move(next);
    if (!batch_) stream_ = nullptr;
    return *this;
  }
  void operator++(int) { ++*this; }
  [[nodiscard]] bool operator==(const BatchIterator& other) const noexcept {
    return stream_ == other.stream_;
  }
  [[nodiscard]] bool operator!=(const BatchIterator& other) const noexcept {
    return stream_ != other.stream_;
  }

 private:
  S* stream_ = nullptr;
  Batch batch_;
};

/// What HostStream and Stream have in common.
template <class Raw, class BatchOfRaw>
class BasicStream : public Owned<Raw> {
  using Functions = StreamFunctions<Raw>;

 public:
  using Batch = BatchOfRaw;
  using Owned<Raw>::Owned;

  /// The schema: a struct of the columns.
  Result<Schema> schema() {
    if (!*this) return released_stream();
    Schema schema;
    const int failed = this->get()->get_schema(this->get(), schema.get());
    if (failed != 0) return why(failed);
    return schema;
  }

  /// The next batch; nothing (false) at the end of the stream. Where a stream of another producer
  /// fails, which has a text alone, the status is Status::provider.
  Result<Batch> next() {
    if (!*this) return released_stream();
    Batch batch;
    const int failed = this->get()->get_next(this->get(), batch.get());
    if (failed != 0) return why(failed);
    return batch;
  }

  /// next() without a wait: nullopt where nothing has come yet, an empty batch at the end. Streams
  /// of Client::get() only.
  Result<std::optional<Batch>> try_next() {
    Batch batch;
    dipc_error* error = nullptr;
    const dipc_status status = Functions::try_next(this->get(), batch.get(), &error);
    if (status < 0) return Error::adopt(status, error);
    if (status == DIPC_NOTHING) return std::optional<Batch>();
    return std::optional<Batch>(std::move(batch));
  }

  /// A descriptor for poll(), epoll and event loops, readable when try_next() may find something.
  /// Call try_next() until it gives nullopt, and only then sleep. The descriptor is the stream's:
  /// not to be closed or read from. Streams of Client::get() only.
  ///
  /// @return Status::unsupported: a stream that copies arrays from or to a GPU.
  Result<int> fd() const {
    return call_for<int>([this](int* out, dipc_error** error) {
      return Functions::fd(this->get(), out, error);
    });
  }

  /// Iterates over the batches that are left; throws dipc::Exception where the stream fails.
  template <bool Throws = DIPC_CPP_EXCEPTIONS>
  [[nodiscard]] auto begin() {
    return BatchIterator<Throws, BasicStream>(this);
  }
  template <bool Throws = DIPC_CPP_EXCEPTIONS>
  [[nodiscard]] auto end() noexcept {
    return BatchIterator<Throws, BasicStream>();
  }

  /// The headers of the server's answer: those that came with the schema, then those that came with
  /// a failure. Streams of Client::get() only.
  Result<Headers> headers() const {
    return call_for_headers([this](dipc_headers** out, dipc_error** error) {
      return Functions::headers(this->get(), out, error);
    });
  }

  /// Custom metadata of the batch that next() gave last. Streams of Client::get() only.
  Result<Metadata> metadata() const {
    auto bytes = call_for_text([this](char* buffer, std::size_t size, std::size_t* length,
                                      dipc_error** error) {
      return Functions::metadata(this->get(), reinterpret_cast<std::uint8_t*>(buffer), size, length,
                                 error);
    });
    if (!bytes) return std::move(bytes).error();
    return decode_metadata(*bytes);
  }

  /// One figure, so far. Streams of Client::get() only.
  Result<std::uint64_t> stat(StreamStat stat) const {
    return call_for<std::uint64_t>([&](std::uint64_t* out, dipc_error** error) {
      return Functions::stat(this->get(), static_cast<std::int32_t>(stat), out, error);
    });
  }

 private:
  Error why(int number) {
    Raw* stream = this->get();
    if (const Error* error = GeneratedError::of(*stream)) return *error;
    const char* text = stream->get_last_error == nullptr ? nullptr : stream->get_last_error(stream);
    Error own(Status::provider,
              text == nullptr ? std::generic_category().message(number) : text);
    const auto full =
        call([stream](dipc_error** error) { return Functions::status(stream, error); });
    // The library knows no status of another producer's stream: its text is all there is.
    if (full.ok() || (full.status() == Status::invalid_argument &&
                      full.error().text() != own.text())) {
      return own;
    }
    return full.error();
  }
};

}  // namespace detail

/// A stream of batches on the host, as everything takes it that knows Arrow's C stream interface.
/// One of Stream::to_host() keeps the status, the figures, the metadata and the headers of the
/// stream that it was made of. One thread at a time.
class HostStream : public detail::BasicStream<ArrowArrayStream, Array> {
 public:
  using BasicStream::BasicStream;
};

/// A stream of batches, wherever they lie: what Client::get() gives and what a provider returns.
/// Releasing one of Client::get() before its end cancels it. One thread at a time; its batches may
/// be released by any, and live on without it.
class Stream : public detail::BasicStream<ArrowDeviceArrayStream, DeviceArray> {
 public:
  using BasicStream::BasicStream;

  /// Turns a stream of the host into one of this kind. `source` is moved on success.
  static Result<Stream> from_host(HostStream&& source) {
    Stream stream;
    auto done = detail::call([&](dipc_error** error) {
      return dipc_stream_from_host(source.get(), stream.get(), error);
    });
    if (!done) return std::move(done).error();
    return stream;
  }

  /// Turns it into a stream of the host. Arrays of CUDA are copied there as they are asked for.
  /// Fails with Status::unsupported where the arrays cannot be read; this stream is then as before.
  Result<HostStream> to_host() && {
    HostStream host;
    auto done = detail::call([&](dipc_error** error) {
      return dipc_stream_to_host(get(), host.get(), error);
    });
    if (!done) return std::move(done).error();
    return host;
  }

  /// Turns it into a stream whose arrays lie on the GPU `device_id` (`device_type`
  /// ARROW_DEVICE_CUDA) or the host (ARROW_DEVICE_CPU), where they are copied as they are asked for.
  /// On failure this stream is as before.
  Result<Stream> to_device(ArrowDeviceType device_type, std::int64_t device_id = 0) && {
    Stream moved;
    auto done = detail::call([&](dipc_error** error) {
      return dipc_stream_to_device(get(), device_type, device_id, moved.get(), error);
    });
    if (!done) return std::move(done).error();
    return moved;
  }

  /// Where the arrays lie, as ARROW_DEVICE_CPU.
  [[nodiscard]] ArrowDeviceType device_type() const noexcept { return get()->device_type; }
};

/// Gives a batch custom metadata, in the place of any that it has. They go with it, whichever way it
/// is sent. A batch of Stream::next() has its metadata already.
inline Result<void> set_metadata(DeviceArray& batch, const Metadata& metadata) {
  const std::string encoded = encode_metadata(metadata);
  return detail::call([&](dipc_error** error) {
    return dipc_batch_set_metadata(batch.get(),
                                   encoded.empty() ? nullptr : detail::byte_pointer(encoded),
                                   encoded.size(), error);
  });
}

}  // namespace dipc

#endif  // DIPC_STREAM_HPP
