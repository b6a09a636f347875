// Requests: what a client asks for, as a provider and the pull form see it.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_REQUEST_HPP
#define DIPC_REQUEST_HPP

#include <dipc/generate.hpp>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

namespace dipc {

/// The request that a provider was given: valid until the provider's stream is released, so that
/// the stream may look at it. Copied like a pointer. Every call is allowed from any thread.
class RequestRef {
 public:
  explicit RequestRef(const dipc_request* raw) noexcept : raw_(raw) {}

  /// What the client asked for: any bytes.
  Result<std::string> ticket() const {
    return detail::call_for_text([this](char* buffer, std::size_t size, std::size_t* length,
                                        dipc_error** error) {
      return dipc_request_ticket(raw_, reinterpret_cast<std::uint8_t*>(buffer), size, length,
                                 error);
    });
  }

  /// Who asked, for logs: "pid 4711, uid 1000".
  Result<std::string> peer() const {
    return detail::call_for_text([this](char* buffer, std::size_t size, std::size_t* length,
                                        dipc_error** error) {
      return dipc_request_peer(raw_, buffer, size, length, error);
    });
  }

  /// Whether the client has gone or has cancelled, so that more batches are of no use.
  [[nodiscard]] bool is_cancelled() const noexcept { return dipc_request_is_cancelled(raw_); }

  /// A descriptor that is readable (POLLIN) once is_cancelled() is true: to wait for that beside
  /// something else. It is the request's: not to be closed or read from.
  Result<int> cancel_fd() const {
    return detail::call_for<std::int32_t>([this](std::int32_t* out, dipc_error** error) {
      return dipc_request_cancel_fd(raw_, out, error);
    });
  }

  [[nodiscard]] const dipc_request* raw() const noexcept { return raw_; }

 private:
  const dipc_request* raw_;
};

/// A request of the pull form: start(), then push() for each batch, then finish() or fail(). One
/// that is destroyed unfinished fails its stream. Every call is allowed from any thread.
class Request {
 public:
  /// Takes a handle of dipc_server_next_request().
  explicit Request(dipc_request* raw) noexcept : raw_(raw) {}

  /// What the client asked for: any bytes.
  Result<std::string> ticket() const { return ref().ticket(); }

  /// Who asked, for logs.
  Result<std::string> peer() const { return ref().peer(); }

  /// Whether the client has gone or has cancelled.
  [[nodiscard]] bool is_cancelled() const noexcept { return ref().is_cancelled(); }

  /// A descriptor that is readable (POLLIN) once is_cancelled() is true. It is the request's.
  Result<int> cancel_fd() const { return ref().cancel_fd(); }

  /// Gives the schema, before the first batch. `schema` is read, not moved.
  Result<void> start(const Schema& schema, ArrowDeviceType device_type = ARROW_DEVICE_CPU) const {
    return detail::call([&](dipc_error** error) {
      return dipc_request_start(raw_.get(), schema.get(), device_type, error);
    });
  }

  /// Sends a batch, waiting for room where the client is slow.
  ///
  /// @param batch     Moved on success only: after Status::timeout, call again with it.
  /// @param metadata  Custom metadata of the batch.
  /// @param timeout   How long to wait at most.
  /// @return Status::cancelled, Status::disconnected: the client is gone.
  Result<void> push(DeviceArray&& batch, const Metadata& metadata = {},
                    std::chrono::nanoseconds timeout = forever) const {
    const std::string encoded = encode_metadata(metadata);
    return detail::call([&](dipc_error** error) {
      return dipc_request_push(raw_.get(), batch.get(),
                               encoded.empty() ? nullptr : detail::byte_pointer(encoded),
                               encoded.size(), detail::nanoseconds(timeout), error);
    });
  }

  /// Ends the stream well, waiting for the last batches to leave. After Status::timeout, call again.
  Result<void> finish(std::chrono::nanoseconds timeout = forever) const {
    return detail::call([&](dipc_error** error) {
      return dipc_request_finish(raw_.get(), detail::nanoseconds(timeout), error);
    });
  }

  /// Ends the stream with an error, which the client is told.
  void fail(const Error& error) const { detail::fail_request(raw_.get(), error); }

 private:
  [[nodiscard]] RequestRef ref() const noexcept { return RequestRef(raw_.get()); }

  detail::Handle<dipc_request, dipc_request_free> raw_;
};

}  // namespace dipc

#endif  // DIPC_REQUEST_HPP
