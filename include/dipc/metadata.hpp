// Custom metadata: pairs of key and value, and the bytes that Arrow's C data interface makes of them.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_METADATA_HPP
#define DIPC_METADATA_HPP

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dipc {

/// Keys and values, in their order; a key may come twice.
using Metadata = std::vector<std::pair<std::string, std::string>>;

/// The bytes of ArrowSchema::metadata; none where there are no pairs.
[[nodiscard]] inline std::string encode_metadata(const Metadata& metadata) {
  std::string bytes;
  if (metadata.empty()) return bytes;
  const auto number = [&bytes](std::size_t value) {
    const auto word = static_cast<std::int32_t>(value);
    char raw[sizeof word];
    std::memcpy(raw, &word, sizeof word);
    bytes.append(raw, sizeof raw);
  };
  number(metadata.size());
  for (const auto& [key, value] : metadata) {
    number(key.size());
    bytes += key;
    number(value.size());
    bytes += value;
  }
  return bytes;
}

/// The pairs in the bytes of ArrowSchema::metadata. Bytes that end too early give what came before.
[[nodiscard]] inline Metadata decode_metadata(std::string_view bytes) {
  const auto number = [&bytes]() -> std::size_t {
    std::int32_t word = 0;
    if (bytes.size() < sizeof word) return 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    bytes.remove_prefix(sizeof word);
    return word < 0 ? 0 : static_cast<std::size_t>(word);
  };
  const auto text = [&bytes, &number] {
    const std::string_view part = bytes.substr(0, number());
    bytes.remove_prefix(part.size());
    return std::string(part);
  };
  Metadata metadata;
  for (std::size_t left = number(); left > 0 && !bytes.empty(); left--) {
    std::string key = text();
    metadata.emplace_back(std::move(key), text());
  }
  return metadata;
}

/// How many bytes ArrowSchema::metadata has, which the interface does not say otherwise.
[[nodiscard]] inline std::size_t metadata_size(const char* metadata) noexcept {
  if (metadata == nullptr) return 0;
  std::size_t at = 0;
  const auto number = [metadata, &at] {
    std::int32_t word = 0;
    std::memcpy(&word, metadata + at, sizeof word);
    at += sizeof word;
    return word;
  };
  for (std::int32_t texts = number(); texts > 0; texts--) {
    for (int text = 0; text < 2; text++) {
      const std::int32_t length = number();
      at += static_cast<std::size_t>(length);
    }
  }
  return at;
}

}  // namespace dipc

#endif  // DIPC_METADATA_HPP
