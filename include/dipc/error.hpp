// Why a call failed: a status for programs, a text for people.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_ERROR_HPP
#define DIPC_ERROR_HPP

#include <dipc.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

// Whether this translation unit is compiled with exceptions. Templates whose code depends on it
// have it among their parameters, so that units of both kinds can stand in one program.
#if defined(__cpp_exceptions)
#define DIPC_CPP_EXCEPTIONS 1
#else
#define DIPC_CPP_EXCEPTIONS 0
#endif

namespace dipc {

/// What a call came to; the names and numbers of dipc.h. A library newer than the header may give
/// a number that has no name here.
enum class Status : dipc_status {
  ok = DIPC_OK,
  null_argument = DIPC_ERR_NULL_ARGUMENT,
  invalid_argument = DIPC_ERR_INVALID_ARGUMENT,
  invalid_uri = DIPC_ERR_INVALID_URI,
  unsupported = DIPC_ERR_UNSUPPORTED,
  not_found = DIPC_ERR_NOT_FOUND,
  already_exists = DIPC_ERR_ALREADY_EXISTS,
  address_in_use = DIPC_ERR_ADDRESS_IN_USE,
  unreachable = DIPC_ERR_UNREACHABLE,
  permission = DIPC_ERR_PERMISSION,
  protocol = DIPC_ERR_PROTOCOL,
  disconnected = DIPC_ERR_DISCONNECTED,
  cancelled = DIPC_ERR_CANCELLED,
  timeout = DIPC_ERR_TIMEOUT,
  busy = DIPC_ERR_BUSY,
  out_of_memory = DIPC_ERR_OUT_OF_MEMORY,
  out_of_resources = DIPC_ERR_OUT_OF_RESOURCES,
  io = DIPC_ERR_IO,
  invalid_data = DIPC_ERR_INVALID_DATA,
  provider = DIPC_ERR_PROVIDER,
  stopped = DIPC_ERR_STOPPED,
  forked = DIPC_ERR_FORKED,
  panic = DIPC_ERR_PANIC,
  poisoned = DIPC_ERR_POISONED,
  buffer_too_small = DIPC_ERR_BUFFER_TOO_SMALL,
};

/// The name of a status, as in dipc.h: "DIPC_ERR_TIMEOUT". A static string.
[[nodiscard]] inline const char* to_string(Status status) noexcept {
  return dipc_status_name(static_cast<dipc_status>(status));
}

/// Why a call failed. Cheap to copy: copies share the text.
class Error {
 public:
  /// An error of the caller's own, as a provider returns it. The text is copied.
  Error(Status status, std::string_view text)
      : status_(status), text_(copy_of(text)) {}

  /// Takes what a function of dipc.h gave. `raw` may be NULL: then the text is the status's name.
  [[nodiscard]] static Error adopt(dipc_status status, dipc_error* raw) {
    if (raw == nullptr) return Error(static_cast<Status>(status), dipc_status_name(status));
    return Error(static_cast<Status>(status),
                 std::shared_ptr<const dipc_error>(raw, [](const dipc_error* error) {
                   dipc_error_free(const_cast<dipc_error*>(error));
                 }));
  }

  [[nodiscard]] Status status() const noexcept { return status_; }

  /// The cause and, where there is one, the remedy: UTF-8, one line. Valid as long as this error or
  /// a copy of it; a NUL follows.
  [[nodiscard]] std::string_view text() const noexcept { return text_.get(); }

  /// The errno of the system call behind the error; 0 where there was none.
  [[nodiscard]] int os_errno() const noexcept { return dipc_error_os_errno(raw_.get()); }

  /// After how long to ask the server again that refused a request, and longer each time; nullopt
  /// where it has not said. A request with a deadline is asked again by itself.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> retry_after() const noexcept {
    const std::uint64_t time = dipc_error_retry_after_ns(raw_.get());
    if (time == 0) return std::nullopt;
    const auto most = static_cast<std::uint64_t>(std::chrono::nanoseconds::max().count());
    return std::chrono::nanoseconds(static_cast<std::int64_t>(time < most ? time : most));
  }

  /// The error that caused this one. The text of this one contains its text.
  [[nodiscard]] std::optional<Error> source() const {
    const dipc_error* cause = dipc_error_source(raw_.get());
    if (cause == nullptr) return std::nullopt;
    return Error(static_cast<Status>(dipc_error_code(cause)),
                 std::shared_ptr<const dipc_error>(raw_, cause));
  }

 private:
  Error(Status status, std::shared_ptr<const dipc_error> raw)
      : status_(status), raw_(std::move(raw)), text_(raw_, dipc_error_text(raw_.get())) {}

  static std::shared_ptr<const char> copy_of(std::string_view text) {
    auto copy = std::make_shared<const std::string>(text);
    return std::shared_ptr<const char>(copy, copy->c_str());
  }

  Status status_;
  std::shared_ptr<const dipc_error> raw_;  // NULL in an error of the caller's own
  std::shared_ptr<const char> text_;       // owns what it points into
};

#if DIPC_CPP_EXCEPTIONS

/// What Result::value() throws. Thrown by a provider, it reaches the client with its status.
class Exception : public std::exception {
 public:
  explicit Exception(Error error) noexcept : error_(std::move(error)) {}
  Exception(Status status, std::string_view text) : error_(status, text) {}

  [[nodiscard]] const Error& error() const noexcept { return error_; }
  [[nodiscard]] Status status() const noexcept { return error_.status(); }
  [[nodiscard]] const char* what() const noexcept override { return error_.text().data(); }

 private:
  Error error_;
};

#endif  // DIPC_CPP_EXCEPTIONS

}  // namespace dipc

#endif  // DIPC_ERROR_HPP
