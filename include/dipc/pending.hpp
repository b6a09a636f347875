// Pending: a request that waits in an event loop and not in a call.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_PENDING_HPP
#define DIPC_PENDING_HPP

#include <dipc/description.hpp>
#include <dipc/put.hpp>
#include <dipc/stream.hpp>

#include <optional>
#include <type_traits>
#include <utility>

namespace dipc {

namespace detail {

/// Takes what a request gives, as dipc.h gives it. A status above 0 means that it is not there yet.
inline dipc_status take(const dipc_pending* pending, std::optional<Stream>& out,
                        dipc_error** error) {
  Stream stream;
  const dipc_status status = dipc_pending_try_stream(pending, stream.get(), error);
  if (status == DIPC_OK) out = std::move(stream);
  return status;
}

inline dipc_status take(const dipc_pending* pending, std::optional<DescriptionHandle>& out,
                        dipc_error** error) {
  dipc_description* raw = nullptr;
  const dipc_status status = dipc_pending_try_description(pending, &raw, error);
  if (status == DIPC_OK) out = DescriptionHandle(raw);
  return status;
}

inline dipc_status take(const dipc_pending* pending, std::optional<Put>& out, dipc_error** error) {
  dipc_put* raw = nullptr;
  const dipc_status status = dipc_pending_try_put(pending, &raw, error);
  if (status == DIPC_OK) out = Put(raw);
  return status;
}

inline dipc_status take(const dipc_pending* pending, std::optional<Exchange>& out,
                        dipc_error** error) {
  dipc_put* raw = nullptr;
  Stream answers;
  const dipc_status status = dipc_pending_try_exchange(pending, &raw, answers.get(), error);
  if (status == DIPC_OK) out = Exchange{Put(raw), std::move(answers)};
  return status;
}

}  // namespace detail

/// A request on its way, of Client::start_get() and its like: a thread of the client connects and
/// waits for the server. T is what the server's answer becomes: Stream, Description, Put or
/// Exchange. One that is destroyed before its answer came ends the request; what it gave lives on.
/// Every call is allowed from any thread.
template <class T>
class Pending {
 public:
  /// Takes a handle of dipc_client_start() or its like.
  explicit Pending(dipc_pending* raw) noexcept : raw_(raw) {}

  /// A descriptor for poll(), epoll and event loops, readable once the answer has come. It is the
  /// request's: not to be closed or read from.
  Result<int> fd() const {
    return detail::call_for<int>([this](int* out, dipc_error** error) {
      return dipc_pending_fd(raw_.get(), out, error);
    });
  }

  /// The answer, once; nullopt while it has not come. Fails as the call with the wait does.
  Result<std::optional<T>> try_take() const {
    if constexpr (std::is_same_v<T, Description>) {
      auto raw = take<detail::DescriptionHandle>();
      if (!raw) return std::move(raw).error();
      if (!raw->has_value()) return std::optional<T>();
      auto description = detail::description_of((*raw)->get());
      if (!description) return std::move(description).error();
      return std::optional<T>(*std::move(description));
    } else {
      return take<T>();
    }
  }

  /// The handle, which stays this object's.
  [[nodiscard]] dipc_pending* raw() const noexcept { return raw_.get(); }

 private:
  template <class Taken>
  Result<std::optional<Taken>> take() const {
    std::optional<Taken> taken;
    auto done = detail::call([&](dipc_error** error) {
      return detail::take(raw_.get(), taken, error);
    });
    if (!done) return std::move(done).error();
    return taken;
  }

  detail::Handle<dipc_pending, dipc_pending_free> raw_;
};

}  // namespace dipc

#endif  // DIPC_PENDING_HPP
