// Span<T>: a pointer and a count, for the time before std::span.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_SPAN_HPP
#define DIPC_SPAN_HPP

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <type_traits>

namespace dipc {

/// Elements that somebody else owns. Made from arrays, and from anything with data() and size():
/// std::vector, std::array, std::span.
template <class T>
class Span {
  template <class C>
  using PointerOf = decltype(std::data(std::declval<C&>()));

  // Whether C's elements lie one after the other as T, but for a const.
  template <class C>
  static constexpr bool has_elements =
      std::is_convertible_v<std::remove_pointer_t<PointerOf<C>> (*)[], T (*)[]>;

 public:
  using value_type = std::remove_cv_t<T>;

  constexpr Span() noexcept = default;
  constexpr Span(T* data, std::size_t size) noexcept : data_(data), size_(size) {}
  template <class C, class = PointerOf<C>,
            class = std::enable_if_t<!std::is_same_v<std::decay_t<C>, Span> && has_elements<C>>>
  constexpr Span(C&& container) noexcept
      : data_(std::data(container)), size_(std::size(container)) {}

  [[nodiscard]] constexpr T* data() const noexcept { return data_; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] constexpr T* begin() const noexcept { return data_; }
  [[nodiscard]] constexpr T* end() const noexcept { return data_ + size_; }
  [[nodiscard]] constexpr T& operator[](std::size_t index) const noexcept { return data_[index]; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Bytes that are read.
using Bytes = Span<const std::uint8_t>;

/// The bytes of a text.
[[nodiscard]] inline Bytes bytes_of(std::string_view text) noexcept {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

}  // namespace dipc

#endif  // DIPC_SPAN_HPP
