// Put: a table on its way to a server.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_PUT_HPP
#define DIPC_PUT_HPP

#include <dipc/headers.hpp>
#include <dipc/metadata.hpp>
#include <dipc/owned.hpp>
#include <dipc/stream.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace dipc {

/// A figure of a put.
enum class PutStat : std::int32_t {
  batches = DIPC_PUT_STAT_BATCHES,            ///< Sent.
  bytes_lent = DIPC_PUT_STAT_BYTES_LENT,      ///< Lent to the server where they lay.
  bytes_copied = DIPC_PUT_STAT_BYTES_COPIED,  ///< Copied here, to be lent from the copy or sent.
  bytes_sent = DIPC_PUT_STAT_BYTES_SENT,      ///< Sent through the connection.
  /// Buffers that the server has and has not given back.
  lent_outstanding = DIPC_PUT_STAT_LENT_OUTSTANDING,
};

/// The word of a server's host that a part of a table is safe, whatever happens to the rest.
struct PutResult {
  std::uint64_t batches = 0;  ///< Batches from the first on that are safe.
  std::string bytes = {};     ///< Of the server's host.
  bool is_end = false;        ///< There are no more results: the host has taken the whole table.

  /// Whether it is a result and not the end.
  [[nodiscard]] explicit operator bool() const noexcept { return !is_end; }
};

/// A table on its way to a server, of Client::put(), Client::put_open() or Client::exchange(). One that is destroyed
/// before finish() has succeeded fails. One thread at a time; a Cancel ends a call from another one.
///
/// After a failure other than Status::timeout of a call's own time, or Status::invalid_data of a
/// batch, the put is over, and later calls fail in the same way.
class Put {
 public:
  /// Takes a handle of dipc_client_put() or dipc_client_put_open().
  explicit Put(dipc_put* raw) noexcept : raw_(raw) {}

  /// Client::put_open(): sends a batch, waiting for room where the server is slow.
  ///
  /// @param batch     Moved on success only. Released when the server has given it back.
  /// @param metadata  Custom metadata of the batch.
  /// @param timeout   How long to wait at most. After Status::timeout call again, unless is_over().
  Result<void> push(DeviceArray&& batch, const Metadata& metadata = {},
                    std::chrono::nanoseconds timeout = forever) {
    const std::string encoded = encode_metadata(metadata);
    return detail::call([&](dipc_error** error) {
      return dipc_put_push(raw_.get(), batch.get(),
                           encoded.empty() ? nullptr : detail::byte_pointer(encoded),
                           encoded.size(), detail::nanoseconds(timeout), error);
    });
  }

  /// Waits for the next result; `false` (PutResult::is_end) behind the last one. Sends the batches
  /// of a stream meanwhile. Once the put is over, gives the results that came before.
  Result<PutResult> next_result(std::chrono::nanoseconds timeout = forever) {
    PutResult result;
    dipc_error* error = nullptr;
    const dipc_status status =
        dipc_put_next_result(raw_.get(), detail::nanoseconds(timeout), &result.batches, &error);
    if (status < 0) return Error::adopt(status, error);
    result.is_end = status == DIPC_NOTHING;
    if (result.is_end) return result;
    auto bytes = detail::call_for_text([this](char* buffer, std::size_t size, std::size_t* length,
                                              dipc_error** failure) {
      return dipc_put_result(raw_.get(), reinterpret_cast<std::uint8_t*>(buffer), size, length,
                             failure);
    });
    if (!bytes) return std::move(bytes).error();
    result.bytes = *std::move(bytes);
    return result;
  }

  /// Ends the table, and waits until the server's host has taken all of it. Sends the rest of a
  /// stream first. After Status::timeout, call again, unless is_over().
  ///
  /// @return How many batches the host has taken.
  Result<std::uint64_t> finish(std::chrono::nanoseconds timeout = forever) {
    return detail::call_for<std::uint64_t>([&](std::uint64_t* out, dipc_error** error) {
      return dipc_put_finish(raw_.get(), detail::nanoseconds(timeout), out, error);
    });
  }

  /// push() without a wait: false where there is no room yet, and then nothing was moved.
  Result<bool> try_push(DeviceArray&& batch, const Metadata& metadata = {}) {
    auto pushed = push(std::move(batch), metadata, std::chrono::nanoseconds::zero());
    if (pushed.ok()) return true;
    if (is_not_yet(pushed.status())) return false;
    return std::move(pushed).error();
  }

  /// next_result() without a wait: nullopt where none has come yet.
  Result<std::optional<PutResult>> try_next_result() {
    return unless_not_yet(next_result(std::chrono::nanoseconds::zero()));
  }

  /// finish() without a wait: nullopt while the host has not taken everything.
  Result<std::optional<std::uint64_t>> try_finish() {
    return unless_not_yet(finish(std::chrono::nanoseconds::zero()));
  }

  /// A descriptor for poll(), epoll and event loops: where a call without a wait gives false or
  /// nullopt, it becomes readable when the call may go on. It is the put's: not to be closed or
  /// read from.
  Result<int> fd() {
    return detail::call_for<int>([this](int* out, dipc_error** error) {
      return dipc_put_fd(raw_.get(), out, error);
    });
  }

  /// Fails the table with an error, which the server's host sees.
  Result<void> fail(const Error& why) {
    return detail::call([&](dipc_error** error) {
      return dipc_put_fail(raw_.get(), static_cast<std::int32_t>(why.status()), why.text().data(),
                           error);
    });
  }

  /// Whether the put is over: finished, failed, cancelled or too late.
  [[nodiscard]] bool is_over() const noexcept { return dipc_put_is_over(raw_.get()); }

  /// The headers of the server's answers so far.
  Result<Headers> headers() {
    return detail::call_for_headers([this](dipc_headers** out, dipc_error** error) {
      return dipc_put_headers(raw_.get(), out, error);
    });
  }

  /// One figure, so far.
  Result<std::uint64_t> stat(PutStat stat) const {
    return detail::call_for<std::uint64_t>([&](std::uint64_t* out, dipc_error** error) {
      return dipc_put_stat(raw_.get(), static_cast<std::int32_t>(stat), out, error);
    });
  }

  /// The handle, which stays this object's.
  [[nodiscard]] dipc_put* raw() const noexcept { return raw_.get(); }

 private:
  /// Whether a call failed because its own time has passed.
  [[nodiscard]] bool is_not_yet(Status status) const noexcept {
    return status == Status::timeout && !is_over();
  }

  template <class T>
  Result<std::optional<T>> unless_not_yet(Result<T> result) const {
    if (result.ok()) return std::optional<T>(*std::move(result));
    if (is_not_yet(result.status())) return std::optional<T>();
    return std::move(result).error();
  }

  detail::Handle<dipc_put, dipc_put_free> raw_;
};

/// A table on its way to a server and one on its way from there, on one connection at once. Two
/// threads may use the two members, and either table may end first. An error at either side ends
/// both tables at both sides, and so does the end of a member's life before the end of its table.
struct Exchange {
  /// The table from here. Put::finish() waits until the server's host has ended its table, too:
  /// read `answers` to the end before or meanwhile.
  Put put;
  Stream answers;  ///< The table from there, on the host. schema() waits for the server's schema.
};

}  // namespace dipc

#endif  // DIPC_PUT_HPP
