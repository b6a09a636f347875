// Headers: pairs of a key and a value that go with a request and with its answer.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_HEADERS_HPP
#define DIPC_HEADERS_HPP

#include <dipc/detail.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dipc {

/// Pairs of a key and a value, in order; a key may come more than once. A key has 1 to 255 of the
/// characters a to z, 0 to 9, '-', '_' and '.'; keys that begin with "dipc-" are the library's own.
/// A value is any bytes. Keys are checked by the call that sends the headers.
class Headers {
 public:
  using value_type = std::pair<std::string, std::string>;

  Headers() = default;
  Headers(std::initializer_list<value_type> pairs) : pairs_(pairs) {}

  /// Adds a pair at the end.
  Headers& add(std::string_view key, std::string_view value) {
    pairs_.emplace_back(key, value);
    return *this;
  }

  /// The value of the first pair with a key; nullopt where no pair has it.
  [[nodiscard]] std::optional<std::string> get(std::string_view key) const {
    for (const auto& pair : pairs_) {
      if (pair.first == key) return pair.second;
    }
    return std::nullopt;
  }

  /// The values of all pairs with a key, in their order.
  [[nodiscard]] std::vector<std::string> get_all(std::string_view key) const {
    std::vector<std::string> values;
    for (const auto& pair : pairs_) {
      if (pair.first == key) values.push_back(pair.second);
    }
    return values;
  }

  [[nodiscard]] std::size_t size() const noexcept { return pairs_.size(); }
  [[nodiscard]] bool empty() const noexcept { return pairs_.empty(); }
  [[nodiscard]] auto begin() const noexcept { return pairs_.begin(); }
  [[nodiscard]] auto end() const noexcept { return pairs_.end(); }

  friend bool operator==(const Headers& left, const Headers& right) {
    return left.pairs_ == right.pairs_;
  }
  friend bool operator!=(const Headers& left, const Headers& right) { return !(left == right); }

 private:
  std::vector<value_type> pairs_;
};

namespace detail {

using HeadersHandle = Handle<dipc_headers, dipc_headers_free>;

/// Headers as dipc.h takes them.
inline Result<HeadersHandle> build(const Headers& headers) {
  auto raw = call_for<dipc_headers*>(dipc_headers_new);
  if (!raw) return std::move(raw).error();
  HeadersHandle built(*raw);
  for (const auto& [key, value] : headers) {
    auto name = c_string(key, Status::invalid_argument, "the key of a header");
    if (!name) return std::move(name).error();
    auto added = call([&, &bytes = value](dipc_error** error) {
      return dipc_headers_add(built.get(), name->c_str(), byte_pointer(bytes), bytes.size(), error);
    });
    if (!added) return std::move(added).error();
  }
  return built;
}

/// Reads the headers that `function(dipc_headers**, dipc_error**)` gives.
template <class F>
Result<Headers> call_for_headers(F&& function) {
  auto raw = call_for<dipc_headers*>(std::forward<F>(function));
  if (!raw) return std::move(raw).error();
  const HeadersHandle owned(*raw);
  Headers headers;
  const std::size_t count = dipc_headers_count(owned.get());
  for (std::size_t i = 0; i < count; i++) {
    auto key = call_for_text([&](char* buffer, std::size_t size, std::size_t* length,
                                 dipc_error** error) {
      return dipc_headers_key(owned.get(), i, buffer, size, length, error);
    });
    if (!key) return std::move(key).error();
    auto value = call_for_text([&](char* buffer, std::size_t size, std::size_t* length,
                                   dipc_error** error) {
      return dipc_headers_value(owned.get(), i, reinterpret_cast<std::uint8_t*>(buffer), size,
                                length, error);
    });
    if (!value) return std::move(value).error();
    headers.add(*key, *value);
  }
  return headers;
}

}  // namespace detail
}  // namespace dipc

#endif  // DIPC_HEADERS_HPP
