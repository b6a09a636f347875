// Statuses and errors as text: operator<<, and std::format where the library of C++ has it.
//
//   std::format("{}", error)      "DIPC_ERR_NOT_FOUND: the server has no such ticket ..."
//   std::format("{:>24}", status) width, fill and precision as for texts
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_FORMAT_HPP
#define DIPC_FORMAT_HPP

#include <dipc/error.hpp>

#include <iosfwd>
#include <string>
#if __has_include(<version>)
#include <version>
#endif
#if defined(__cpp_lib_format)
#include <format>
#endif

namespace dipc {

/// An error in one line: the name of its status, and its text.
[[nodiscard]] inline std::string to_string(const Error& error) {
  std::string text = to_string(error.status());
  text += ": ";
  text += error.text();
  return text;
}

/// Writes the name of a status. A template, so that <ostream> is the caller's to include.
template <class Traits>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out, Status status) {
  return out << to_string(status);
}

/// Writes what to_string() gives.
template <class Traits>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out,
                                             const Error& error) {
  return out << to_string(error);
}

}  // namespace dipc

#if defined(__cpp_lib_format)

/// A status by its name.
template <>
struct std::formatter<dipc::Status, char> : std::formatter<std::string_view, char> {
  template <class Context>
  auto format(dipc::Status status, Context& context) const {
    return std::formatter<std::string_view, char>::format(dipc::to_string(status), context);
  }
};

/// An error by its status and text.
template <>
struct std::formatter<dipc::Error, char> : std::formatter<std::string_view, char> {
  template <class Context>
  auto format(const dipc::Error& error, Context& context) const {
    return std::formatter<std::string_view, char>::format(dipc::to_string(error), context);
  }
};

#endif  // __cpp_lib_format

#endif  // DIPC_FORMAT_HPP
