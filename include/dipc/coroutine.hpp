// Coroutines of C++20 over the calls that do not wait, in an event loop of any make.
//
//   auto batch = co_await dipc::async::next(loop, stream);   a Result, as Stream::next() gives it
//
// The loop is any object with `void wait_readable(int fd, std::coroutine_handle<> waiting)`, or a
// callable with these arguments: it resumes `waiting` once, when `fd` is readable. It outlives what
// waits, and resumes it on one thread. A loop may also have
// `void forget(int fd, std::coroutine_handle<> waiting)`, which takes that back: it is called when a
// coroutine is destroyed while it waits. To a loop without it the handle stays valid: resumed, it
// frees itself and does nothing else.
//
// A coroutine that is destroyed destroys its streams and requests, and so ends them.
//
// Not part of <dipc/dipc.hpp>. Empty where the compiler has no coroutines.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_COROUTINE_HPP
#define DIPC_COROUTINE_HPP

#include <dipc/client.hpp>
#include <dipc/pending.hpp>
#include <dipc/put.hpp>
#include <dipc/server.hpp>
#include <dipc/stream.hpp>

#if defined(__cpp_impl_coroutine)

#include <chrono>
#include <coroutine>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace dipc::async {

/// What co_await takes: gives the Result of `Attempt`, called again whenever the descriptor of `Fd`
/// is readable, until there is one. To be awaited where it is made.
///
/// @tparam Attempt  Gives a std::optional<Result<T>>; nullopt: not yet.
/// @tparam Fd       Gives the descriptor, a Result<int>; called after the first attempt.
template <class Loop, class Fd, class Attempt>
class [[nodiscard]] Wait {
 public:
  Wait(Loop& loop, Fd fd, Attempt attempt)
      : loop_(loop), find_fd_(std::move(fd)), attempt_(std::move(attempt)) {}
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  ~Wait() {
    if (!relay_) return;
    if (relay_.done()) {
      relay_.destroy();
    } else if constexpr (can_forget()) {
      loop_.forget(fd_, relay_);
      relay_.destroy();
    } else {
      relay_.promise().owner = nullptr;  // it ends when the loop resumes it
    }
  }

  bool await_ready() {
    if (is_there()) return true;
    auto fd = find_fd_();
    if (!fd) {
      result_.emplace(std::move(fd).error());
      return true;
    }
    fd_ = *fd;
    return false;
  }
  void await_suspend(std::coroutine_handle<> waiting) {
    waiting_ = waiting;
    relay_ = watch(this).handle;
    relay_.resume();
  }
  auto await_resume() { return *std::move(result_); }

 private:
  // A coroutine between the loop and the one that waits: the descriptor may be readable without a
  // result, and then only this one is resumed.
  struct Relay {
    struct promise_type {
      explicit promise_type(Wait* of) noexcept : owner(of) {}

      Wait* owner;  // NULL: destroyed while it waited

      Relay get_return_object() noexcept {
        return {std::coroutine_handle<promise_type>::from_promise(*this)};
      }
      std::suspend_always initial_suspend() noexcept { return {}; }
      auto final_suspend() noexcept {
        struct Last {
          Wait* owner;
          // Without an owner nobody else destroys the relay: it runs to its end.
          bool await_ready() noexcept { return owner == nullptr; }
          std::coroutine_handle<> await_suspend(std::coroutine_handle<>) noexcept {
            return owner->waiting_;
          }
          void await_resume() noexcept {}
        };
        return Last{owner};
      }
      void return_void() noexcept {}
      void unhandled_exception() {
#if DIPC_CPP_EXCEPTIONS
        throw;
#else
        std::abort();
#endif
      }
    };

    std::coroutine_handle<promise_type> handle;
  };

  struct Step {
    typename Relay::promise_type* promise = nullptr;

    bool await_ready() noexcept { return false; }
    void await_suspend(std::coroutine_handle<typename Relay::promise_type> relay) {
      promise = &relay.promise();
      Wait& owner = *promise->owner;
      if constexpr (requires { owner.loop_.wait_readable(owner.fd_, relay); }) {
        owner.loop_.wait_readable(owner.fd_, relay);
      } else {
        owner.loop_(owner.fd_, std::coroutine_handle<>(relay));
      }
    }
    /// Whether the relay has nothing left to wait for.
    bool await_resume() { return promise->owner == nullptr || promise->owner->is_there(); }
  };

  static Relay watch(Wait* /*the promise has it*/) {
    for (;;) {
      // A name of its own: GCC 12 traps on co_await in the condition of a loop.
      const bool is_over = co_await Step{};
      if (is_over) co_return;
    }
  }

  static constexpr bool can_forget() noexcept {
    return requires(Loop & loop, std::coroutine_handle<> handle) { loop.forget(0, handle); };
  }

  bool is_there() {
    auto result = attempt_();
    if (!result.has_value()) return false;
    result_.emplace(*std::move(result));
    return true;
  }

  Loop& loop_;
  Fd find_fd_;
  Attempt attempt_;
  decltype(std::declval<Attempt&>()()) result_;
  int fd_ = -1;
  std::coroutine_handle<> waiting_;
  std::coroutine_handle<typename Relay::promise_type> relay_;
};

namespace detail {

/// What a call without a wait gave, once it gives something.
template <class T>
std::optional<Result<T>> there(Result<std::optional<T>> tried) {
  if (!tried) return Result<T>(std::move(tried).error());
  if (!tried->has_value()) return std::nullopt;
  return Result<T>(**std::move(tried));
}
inline std::optional<Result<void>> there(const Result<bool>& tried) {
  if (!tried) return Result<void>(tried.error());
  if (!*tried) return std::nullopt;
  return Result<void>();
}

/// Waits for the descriptor of `object`, which must outlive the wait.
template <class Loop, class T, class Attempt>
auto until(Loop& loop, T& object, Attempt attempt) {
  auto fd = [&object] { return object.fd(); };
  return Wait<Loop, decltype(fd), Attempt>(loop, fd, std::move(attempt));
}

/// A request that was started here, with the answer to it.
template <class Loop, class T>
auto answer_to(Loop& loop, Result<Pending<T>> started) {
  // Both functions look at one request, which is where it does not move.
  auto pending = std::make_shared<Result<Pending<T>>>(std::move(started));
  auto fd = [pending] { return (*pending)->fd(); };
  auto attempt = [pending]() -> std::optional<Result<T>> {
    if (!*pending) return Result<T>(pending->error());
    return there((*pending)->try_take());
  };
  return Wait<Loop, decltype(fd), decltype(attempt)>(loop, std::move(fd), std::move(attempt));
}

}  // namespace detail

/// The server's answer to a request of Client::start_get() and its like, which outlives the wait.
template <class Loop, class T>
auto answer(Loop& loop, const Pending<T>& pending) {
  return detail::until(loop, pending, [&pending] { return detail::there(pending.try_take()); });
}

/// Client::get().
template <class Loop>
auto get(Loop& loop, const Client& client, std::string_view uri, std::string_view ticket,
         const GetOptions& options = {}, const Cancel* cancel = nullptr) {
  return detail::answer_to(loop, client.start_get(uri, ticket, options, cancel));
}

/// Client::describe().
template <class Loop>
auto describe(Loop& loop, const Client& client, std::string_view uri, std::string_view ticket,
              const GetOptions& options = {}, const Cancel* cancel = nullptr) {
  return detail::answer_to(loop, client.start_describe(uri, ticket, options, cancel));
}

/// Client::put_open().
template <class Loop>
auto put(Loop& loop, const Client& client, std::string_view uri, std::string_view descriptor,
         const Schema& schema, const PutOptions& options = {}, const Cancel* cancel = nullptr) {
  return detail::answer_to(loop, client.start_put(uri, descriptor, schema, options, cancel));
}

/// The next batch of a Stream or HostStream of Client::get(); nothing (false) at its end.
template <class Loop, class S>
auto next(Loop& loop, S& stream) {
  return detail::until(loop, stream, [&stream] { return detail::there(stream.try_next()); });
}

/// Pull form: the next request of a server.
template <class Loop>
auto next_request(Loop& loop, const Server& server) {
  auto fd = [&server] { return server.request_fd(); };
  auto attempt = [&server] {
    return detail::there(server.next_request(std::chrono::nanoseconds::zero()));
  };
  return Wait<Loop, decltype(fd), decltype(attempt)>(loop, fd, attempt);
}

/// Sends a batch by a Request or a Put, once there is room.
template <class Loop, class T>
auto push(Loop& loop, T& target, DeviceArray&& batch, Metadata metadata = {}) {
  return detail::until(
      loop, target,
      [&target, batch = std::move(batch), metadata = std::move(metadata)]() mutable {
        return detail::there(target.try_push(std::move(batch), metadata));
      });
}

/// Put::next_result().
template <class Loop>
auto next_result(Loop& loop, Put& put) {
  return detail::until(loop, put, [&put] { return detail::there(put.try_next_result()); });
}

/// Request::finish() or Put::finish().
template <class Loop, class T>
auto finish(Loop& loop, T& target) {
  return detail::until(loop, target, [&target] { return detail::there(target.try_finish()); });
}

}  // namespace dipc::async

#endif  // __cpp_impl_coroutine

#endif  // DIPC_COROUTINE_HPP
