// Cancel: ends calls that wait, from another thread.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_CANCEL_HPP
#define DIPC_CANCEL_HPP

#include <dipc/detail.hpp>

namespace dipc {

/// A token that ends waits. One may be given to any number of calls; once triggered it stays so.
/// Every call is allowed from any thread, trigger() not from a signal handler.
class Cancel {
 public:
  /// Fails with Status::out_of_resources where no file descriptor is left.
  static Result<Cancel> make() {
    auto raw = detail::call_for<dipc_cancel*>(dipc_cancel_new);
    if (!raw) return std::move(raw).error();
    return Cancel(*raw);
  }

  /// Ends every call that the token was given to, now and later, with Status::cancelled.
  Result<void> trigger() const {
    return detail::call([&](dipc_error** error) { return dipc_cancel_trigger(raw_.get(), error); });
  }

  [[nodiscard]] bool is_triggered() const noexcept { return dipc_cancel_is_triggered(raw_.get()); }

  /// The handle, which stays this object's.
  [[nodiscard]] const dipc_cancel* raw() const noexcept { return raw_.get(); }

 private:
  explicit Cancel(dipc_cancel* raw) noexcept : raw_(raw) {}

  detail::Handle<dipc_cancel, dipc_cancel_free> raw_;
};

namespace detail {

/// A token that may be left out.
inline const dipc_cancel* raw_or_null(const Cancel* cancel) noexcept {
  return cancel == nullptr ? nullptr : cancel->raw();
}

}  // namespace detail
}  // namespace dipc

#endif  // DIPC_CANCEL_HPP
