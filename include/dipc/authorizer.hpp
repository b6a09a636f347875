// Authorizer: the host's decision about each request.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_AUTHORIZER_HPP
#define DIPC_AUTHORIZER_HPP

#include <dipc/request.hpp>

#include <functional>
#include <type_traits>
#include <utility>

namespace dipc {

/// Decides whether a client may do what its request says, before anything is done for it.
///
/// Made of a callable that takes a RequestRef, and returns Result<void> or nothing: a success
/// allows, also with RequestRef::set_principal(). An Error refuses, and the client gets its status
/// and text; so does what is thrown, with Status::permission where it is no dipc::Exception. For a
/// list or a description it is also called with Verb::get for each ticket that the answer would
/// show. Several threads call it at once, hence its operator() is const; it may block.
class Authorizer {
 public:
  template <class F, bool Catches = DIPC_CPP_EXCEPTIONS,
            class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, Authorizer> &&
                                     std::is_invocable_v<const std::decay_t<F>&, RequestRef>>>
  Authorizer(F&& function)  // NOLINT(google-explicit-constructor)
      : call_(wrap<Catches>(std::decay_t<F>(std::forward<F>(function)))) {}

  /// Decides about a request.
  Result<void> operator()(RequestRef request) const { return call_(request); }

 private:
  template <bool Catches, class F>
  static std::function<Result<void>(RequestRef)> wrap(F function) {
    return [function = std::move(function)](RequestRef request) -> Result<void> {
      const auto decide = [&]() -> Result<void> {
        if constexpr (std::is_void_v<std::invoke_result_t<const F&, RequestRef>>) {
          function(request);
          return {};
        } else {
          return function(request);
        }
      };
      return detail::guarded<Catches>(decide, Status::permission);
    };
  }

  std::function<Result<void>(RequestRef)> call_;
};

namespace detail {

/// The dipc_authorizer of an Authorizer.
inline std::int32_t authorize(void* userdata, dipc_request* request) {
  const auto decided = (*static_cast<const Authorizer*>(userdata))(RequestRef(request));
  if (decided.ok()) return 0;
  fail_request(request, decided.error());
  return 1;
}

}  // namespace detail
}  // namespace dipc

#endif  // DIPC_AUTHORIZER_HPP
