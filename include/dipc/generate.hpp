// generate(): a stream whose batches a function gives; and what a provider may return.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_GENERATE_HPP
#define DIPC_GENERATE_HPP

#include <dipc/stream.hpp>

#include <cerrno>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace dipc {

/// What counts as a batch. Specialise it to let functions given to generate() return batches of
/// another type.
template <class T>
struct BatchTraits;

template <>
struct BatchTraits<DeviceArray> {
  static Result<DeviceArray> convert(DeviceArray&& batch) { return std::move(batch); }
};

template <>
struct BatchTraits<Array> {
  static Result<DeviceArray> convert(Array&& batch) {
    return DeviceArray::from_host(std::move(batch));
  }
};

template <class T>
struct BatchTraits<Result<T>> {
  static Result<DeviceArray> convert(Result<T>&& batch) {
    if (!batch) return std::move(batch).error();
    return BatchTraits<T>::convert(*std::move(batch));
  }
};

/// What counts as a stream. Specialise it to let providers return streams of another type;
/// <dipc/arrow.hpp> does so for readers and tables.
template <class T>
struct StreamTraits;

template <>
struct StreamTraits<Stream> {
  static Result<Stream> convert(Stream&& stream) { return std::move(stream); }
};

template <>
struct StreamTraits<HostStream> {
  static Result<Stream> convert(HostStream&& stream) {
    return Stream::from_host(std::move(stream));
  }
};

template <class T>
struct StreamTraits<Result<T>> {
  static Result<Stream> convert(Result<T>&& stream) {
    if (!stream) return std::move(stream).error();
    return StreamTraits<T>::convert(*std::move(stream));
  }
};

/// Whatever StreamTraits knows as a Stream.
template <class T>
Result<Stream> to_stream(T&& source) {
  return StreamTraits<std::decay_t<T>>::convert(std::forward<T>(source));
}

namespace detail {

/// Says to the client why there is no stream, or no more of it. A text that is not UTF-8, which
/// dipc.h refuses, loses the characters that are not ASCII.
inline void fail_request(const dipc_request* request, const Error& error) {
  const auto code = static_cast<dipc_status>(error.status());
  std::string text(error.text());
  if (dipc_request_fail(request, code, text.c_str(), nullptr) == DIPC_OK) return;
  for (char& character : text) {
    if (static_cast<unsigned char>(character) >= 0x80) character = '?';
  }
  // There is nobody left to tell where this fails: the client has gone.
  static_cast<void>(dipc_request_fail(request, code, text.c_str(), nullptr));
}

/// The part of a generated stream that does not depend on the function.
struct Generated : GeneratedError {
  Generated(Schema of_table, void (*destructor)(Generated*)) noexcept
      : schema(std::move(of_table)), destroy(destructor) {}

  Schema schema;
  const dipc_request* request = nullptr;  // whom to tell in full, where a provider returned it
  void (*destroy)(Generated*);

  int fail(Error why) {
    if (request != nullptr) fail_request(request, why);
    error = std::move(why);
    return number();
  }

  /// The errno of the error; never 0, whatever status the host made it with.
  [[nodiscard]] int number() const noexcept {
    const auto known = dipc_status_errno(static_cast<dipc_status>(error->status()));
    return known != 0 ? known : EIO;
  }

  static Generated& of(ArrowDeviceArrayStream* stream) noexcept {
    return static_cast<Generated&>(*static_cast<GeneratedError*>(stream->private_data));
  }
  static void release(ArrowDeviceArrayStream* stream) {
    stream->release = nullptr;
    Generated& self = of(stream);
    self.destroy(&self);
  }

  /// Lets a generated stream tell its failures to the client with their status. Streams of other
  /// kinds, and of other copies of this function, tell them by their callbacks.
  static void tie(Stream& stream, const dipc_request* request) noexcept {
    if (stream->release == &Generated::release) of(stream.get()).request = request;
  }
};

template <class F, bool Catches>
struct GeneratedBy : Generated {
  GeneratedBy(Schema of_table, F&& function)
      : Generated(std::move(of_table),
                  [](Generated* self) { delete static_cast<GeneratedBy*>(self); }),
        next(std::forward<F>(function)) {}

  std::decay_t<F> next;

  static int get_schema(ArrowDeviceArrayStream* stream, ArrowSchema* out) {
    Generated& self = of(stream);
    Result<Schema> copy =
        guarded<Catches>([&self]() -> Result<Schema> { return self.schema.copy(); });
    if (!copy) return self.fail(std::move(copy).error());
    copy->move_to(out);
    return 0;
  }

  static int get_next(ArrowDeviceArrayStream* stream, ArrowDeviceArray* out) {
    auto& self = static_cast<GeneratedBy&>(of(stream));
    // A function that has failed is not called again.
    if (self.error.has_value()) return self.number();
    Result<DeviceArray> batch = guarded<Catches>([&self]() -> Result<DeviceArray> {
      return BatchTraits<std::decay_t<decltype(self.next())>>::convert(self.next());
    });
    if (!batch) return self.fail(std::move(batch).error());
    batch->move_to(out);
    return 0;
  }
};

}  // namespace detail

/// Makes a stream whose batches `next` gives, called once for each on the thread that reads the
/// stream. What it throws, or an Error that it returns, ends the stream and is its error.
///
/// @param schema       Of the table; moved.
/// @param next         Returns a DeviceArray, an Array, or a Result of one; nothing at the end.
///                     Destroyed with the stream.
/// @param device_type  Where the batches lie.
template <class F, bool Catches = DIPC_CPP_EXCEPTIONS>
[[nodiscard]] Stream generate(Schema schema, F&& next,
                              ArrowDeviceType device_type = ARROW_DEVICE_CPU) {
  using Source = detail::GeneratedBy<F, Catches>;
  auto source = std::make_unique<Source>(std::move(schema), std::forward<F>(next));
  Stream stream;
  stream->device_type = device_type;
  stream->get_schema = &Source::get_schema;
  stream->get_next = &Source::get_next;
  stream->get_last_error = &detail::Generated::get_last_error;
  stream->release = &detail::Generated::release;
  stream->private_data = static_cast<detail::GeneratedError*>(source.release());
  return stream;
}

}  // namespace dipc

#endif  // DIPC_GENERATE_HPP
