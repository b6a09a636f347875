// Result<T>: a value, or the error in its place. No exceptions unless value() is asked for.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_RESULT_HPP
#define DIPC_RESULT_HPP

#include <dipc/error.hpp>

#include <cstdlib>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#if __has_include(<version>)
#include <version>
#endif
#if defined(__cpp_lib_expected)
#include <expected>
#endif

namespace dipc {
namespace detail {

/// Ends the program where a result is used as what it is not: going on would read memory that is
/// something else.
inline void require(bool condition) noexcept {
  if (!condition) std::abort();
}

template <bool Throws>
[[noreturn]] inline void raise(const Error& error) {
#if DIPC_CPP_EXCEPTIONS
  throw Exception(error);
#else
  static_assert(Throws, "value() throws, and this unit is compiled without exceptions: "
                        "see ok() first, then use * or error()");
  static_cast<void>(error);
  std::abort();
#endif
}

}  // namespace detail

/// A value, or why there is none.
///
/// Without exceptions: see ok(), then use `*result` or error(). With them: value() gives the value
/// or throws dipc::Exception. `*` on a failure, or error() on a success, aborts.
///
/// Where there is a std::expected, a result is made of one and becomes one.
template <class T>
class [[nodiscard]] Result {
  static_assert(!std::is_reference_v<T> && !std::is_same_v<std::remove_cv_t<T>, Error>);

 public:
  using value_type = T;

  template <class U = T, class = std::enable_if_t<std::is_convertible_v<U&&, T> &&
                                                  !std::is_same_v<std::decay_t<U>, Error> &&
                                                  !std::is_same_v<std::decay_t<U>, Result>>>
  Result(U&& value) : content_(std::in_place_index<0>, std::forward<U>(value)) {}
  Result(Error error) noexcept : content_(std::in_place_index<1>, std::move(error)) {}

#if defined(__cpp_lib_expected)
  /// Of a std::expected, and of the error of one.
  Result(std::expected<T, Error> expected)
      : content_(expected.has_value()
                     ? std::variant<T, Error>(std::in_place_index<0>, *std::move(expected))
                     : std::variant<T, Error>(std::in_place_index<1>, std::move(expected).error())) {}
  Result(std::unexpected<Error> unexpected) noexcept
      : content_(std::in_place_index<1>, std::move(unexpected).error()) {}

  /// The same as a std::expected.
  [[nodiscard]] std::expected<T, Error> to_expected() const& {
    if (ok()) return std::expected<T, Error>(std::in_place, *held());
    return std::unexpected<Error>(error());
  }
  [[nodiscard]] std::expected<T, Error> to_expected() && {
    if (ok()) return std::expected<T, Error>(std::in_place, std::move(*held()));
    return std::unexpected<Error>(error());
  }
  /// to_expected() without its name: `std::expected<int, dipc::Error> e = result;`. Of a
  /// Result<bool>, braces or parentheses in the place of `=` ask for operator bool instead.
  operator std::expected<T, Error>() const& { return to_expected(); }
  operator std::expected<T, Error>() && { return std::move(*this).to_expected(); }
#endif

  [[nodiscard]] bool ok() const noexcept { return content_.index() == 0; }
  [[nodiscard]] explicit operator bool() const noexcept { return ok(); }

  [[nodiscard]] T& operator*() & noexcept { return *held(); }
  [[nodiscard]] const T& operator*() const& noexcept { return *held(); }
  [[nodiscard]] T&& operator*() && noexcept { return std::move(*held()); }
  [[nodiscard]] T* operator->() noexcept { return held(); }
  [[nodiscard]] const T* operator->() const noexcept { return held(); }

  [[nodiscard]] const Error& error() const& noexcept {
    const Error* error = std::get_if<1>(&content_);
    detail::require(error != nullptr);
    return *error;
  }
  [[nodiscard]] Error error() && noexcept { return std::as_const(*this).error(); }

  /// The status of the error; Status::ok where there is a value.
  [[nodiscard]] Status status() const noexcept { return ok() ? Status::ok : error().status(); }

  /// The value; throws dipc::Exception where there is none.
  template <bool Throws = DIPC_CPP_EXCEPTIONS>
  [[nodiscard]] T& value() & {
    if (!ok()) detail::raise<Throws>(error());
    return *held();
  }
  template <bool Throws = DIPC_CPP_EXCEPTIONS>
  [[nodiscard]] const T& value() const& {
    if (!ok()) detail::raise<Throws>(error());
    return *held();
  }
  template <bool Throws = DIPC_CPP_EXCEPTIONS>
  [[nodiscard]] T value() && {
    if (!ok()) detail::raise<Throws>(error());
    return std::move(*held());
  }

 private:
  T* held() noexcept {
    detail::require(ok());
    return std::get_if<0>(&content_);
  }
  const T* held() const noexcept {
    detail::require(ok());
    return std::get_if<0>(&content_);
  }

  std::variant<T, Error> content_;
};

/// Success, or why not.
template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  Result() noexcept = default;
  Result(Error error) noexcept : error_(std::move(error)) {}

#if defined(__cpp_lib_expected)
  /// Of a std::expected, and of the error of one.
  Result(std::expected<void, Error> expected) noexcept {
    if (!expected) error_ = std::move(expected).error();
  }
  Result(std::unexpected<Error> unexpected) noexcept : error_(std::move(unexpected).error()) {}

  /// The same as a std::expected.
  [[nodiscard]] std::expected<void, Error> to_expected() const {
    if (ok()) return {};
    return std::unexpected<Error>(*error_);
  }
  operator std::expected<void, Error>() const { return to_expected(); }
#endif

  [[nodiscard]] bool ok() const noexcept { return !error_.has_value(); }
  [[nodiscard]] explicit operator bool() const noexcept { return ok(); }

  [[nodiscard]] const Error& error() const& noexcept {
    detail::require(error_.has_value());
    return *error_;
  }
  [[nodiscard]] Error error() && noexcept { return std::as_const(*this).error(); }

  /// The status of the error; Status::ok on success.
  [[nodiscard]] Status status() const noexcept { return ok() ? Status::ok : error_->status(); }

  /// Nothing; throws dipc::Exception on failure.
  template <bool Throws = DIPC_CPP_EXCEPTIONS>
  void value() const {
    if (!ok()) detail::raise<Throws>(*error_);
  }

 private:
  std::optional<Error> error_;
};

}  // namespace dipc

#endif  // DIPC_RESULT_HPP
