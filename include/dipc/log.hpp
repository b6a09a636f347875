// The log: what the library says, handed to a function of the host's.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_LOG_HPP
#define DIPC_LOG_HPP

#include <dipc/detail.hpp>

#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

namespace dipc {

enum class LogLevel : std::int32_t {
  error = DIPC_LOG_ERROR,  ///< Something failed that no call could report.
  warn = DIPC_LOG_WARN,    ///< Something is wrong and was coped with.
  info = DIPC_LOG_INFO,    ///< Servers and streams come and go.
  debug = DIPC_LOG_DEBUG,  ///< What the library decides, and why.
  trace = DIPC_LOG_TRACE,  ///< Every message.
};

/// Sends log events to `callback`, in place of the one set before; until then the library says
/// nothing at all. Events that come faster than it takes them are dropped and counted.
///
/// @param level     The finest level wanted.
/// @param callback  Called with (LogLevel, std::string_view target, std::string_view text) on a
///                  thread of the log's own, one call at a time. What it throws is dropped: there
///                  is nobody to tell. Destroyed on that thread, after its last call.
template <class F, bool Catches = DIPC_CPP_EXCEPTIONS>
Result<void> set_log(LogLevel level, F&& callback) {
  using Callback = std::decay_t<F>;
  static_assert(std::is_invocable_v<Callback&, LogLevel, std::string_view, std::string_view>,
                "a log callback takes a dipc::LogLevel and two std::string_view");
  auto owned = std::make_unique<Callback>(std::forward<F>(callback));
  auto done = detail::call([&](dipc_error** error) {
    return dipc_log_set(
        static_cast<std::int32_t>(level),
        [](void* userdata, std::int32_t number, const char* target, const char* text) {
          static_cast<void>(detail::guarded<Catches>([&]() -> Result<void> {
            (*static_cast<Callback*>(userdata))(static_cast<LogLevel>(number),
                                                std::string_view(target), std::string_view(text));
            return {};
          }));
        },
        owned.get(), [](void* userdata) { delete static_cast<Callback*>(userdata); }, error);
  });
  if (done.ok()) static_cast<void>(owned.release());  // the finalizer's now
  return done;
}

/// Stops the log; the callback is destroyed on its own thread.
inline Result<void> clear_log() {
  return detail::call([](dipc_error** error) {
    return dipc_log_set(DIPC_LOG_ERROR, nullptr, nullptr, nullptr, error);
  });
}

}  // namespace dipc

#endif  // DIPC_LOG_HPP
