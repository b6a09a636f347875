// What the other headers share: calls of dipc.h, owned handles, texts that come out.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_DETAIL_HPP
#define DIPC_DETAIL_HPP

#include <dipc/result.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

namespace dipc {

/// A time that never comes, for timeouts and deadlines.
inline constexpr std::chrono::nanoseconds forever = std::chrono::nanoseconds::max();

namespace detail {

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* handle) const noexcept {
    Free(handle);
  }
};

/// Owns a handle of dipc.h. A handle that was moved from is NULL, and calls on it fail with
/// Status::null_argument.
template <class T, auto Free>
using Handle = std::unique_ptr<T, Deleter<Free>>;

/// Calls `function(dipc_error**)`; what it wrote elsewhere counts where the result is a success.
template <class F>
Result<void> call(F&& function) {
  dipc_error* error = nullptr;
  const dipc_status status = std::forward<F>(function)(&error);
  if (status < 0) return Error::adopt(status, error);
  return {};
}

/// Calls `function(T*, dipc_error**)` and gives what it wrote.
template <class T, class F>
Result<T> call_for(F&& function) {
  T value{};
  dipc_error* error = nullptr;
  const dipc_status status = std::forward<F>(function)(&value, &error);
  if (status < 0) return Error::adopt(status, error);
  return value;
}

/// Calls `function(char* buffer, size_t size, size_t* len, dipc_error**)` until the buffer is
/// large enough: what is asked for may change between two calls.
template <class F>
Result<std::string> call_for_text(F&& function) {
  std::string buffer(256, '\0');
  for (;;) {
    std::size_t length = 0;
    dipc_error* error = nullptr;
    const dipc_status status = function(buffer.data(), buffer.size(), &length, &error);
    if (status == DIPC_ERR_BUFFER_TOO_SMALL) {
      dipc_error_free(error);
      buffer.resize(length + 1);
      continue;
    }
    if (status < 0) return Error::adopt(status, error);
    buffer.resize(length);
    return buffer;
  }
}

/// Nanoseconds as dipc.h takes them. Negative times have passed already.
inline std::uint64_t nanoseconds(std::chrono::nanoseconds time) noexcept {
  if (time == forever) return DIPC_FOREVER;
  return time.count() < 0 ? 0 : static_cast<std::uint64_t>(time.count());
}

/// A time of dipc.h; `forever` for DIPC_FOREVER.
inline std::chrono::nanoseconds time_of(std::uint64_t nanoseconds) noexcept {
  if (nanoseconds >= static_cast<std::uint64_t>(forever.count())) return forever;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(nanoseconds));
}

/// `text` with a NUL at its end. A NUL inside would silently cut it off, so it is refused.
inline Result<std::string> c_string(std::string_view text, Status status, const char* what) {
  if (text.find('\0') != std::string_view::npos) {
    return Error(status, std::string(what) + " has a NUL character in it");
  }
  return std::string(text);
}

inline const std::uint8_t* byte_pointer(std::string_view text) noexcept {
  // An empty view may have no data, and a ticket may be empty.
  return reinterpret_cast<const std::uint8_t*>(text.data() == nullptr ? "" : text.data());
}

/// Runs `function`, which gives a Result, and turns what it throws into the error: nothing may
/// unwind into the library. `Catches` keeps units with and without exceptions apart. `thrown` is the
/// status of exceptions that have none.
template <bool Catches, class F>
auto guarded(F&& function, [[maybe_unused]] Status thrown = Status::provider) noexcept
    -> decltype(function()) {
#if DIPC_CPP_EXCEPTIONS
  try {
    return std::forward<F>(function)();
  } catch (const Exception& exception) {
    return exception.error();
  } catch (const std::bad_alloc&) {
    return Error(Status::out_of_memory, "the host ran out of memory");
  } catch (const std::exception& exception) {
    return Error(thrown, exception.what());
  } catch (...) {
    return Error(thrown, "something was thrown that is no std::exception");
  }
#else
  return std::forward<F>(function)();
#endif
}

}  // namespace detail
}  // namespace dipc

#endif  // DIPC_DETAIL_HPP
