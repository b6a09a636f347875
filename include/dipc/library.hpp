// The library that was loaded: its version, and what works on this machine.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_LIBRARY_HPP
#define DIPC_LIBRARY_HPP

#include <dipc/detail.hpp>

#include <dlfcn.h>

#include <string>
#include <string_view>

namespace dipc {

/// The version of the library that was loaded: "0.1.0". A static string.
[[nodiscard]] inline const char* version() noexcept { return dipc_version_string(); }

/// Whether the library that was loaded is of the version that this header is of: of the same
/// major version and, before 1.0, of the same minor version, and not older. Servers, clients and
/// arenas are not made otherwise.
///
/// @return Status::unsupported where it is not; the text has both versions and the library's path.
inline Result<void> check_version() {
  const std::uint32_t loaded = dipc_version();
  const std::uint32_t header =
      DIPC_VERSION_MAJOR * 1000000 + DIPC_VERSION_MINOR * 1000 + DIPC_VERSION_PATCH;
  // What must be equal: everything but the parts that may grow.
  const std::uint32_t may_grow = DIPC_VERSION_MAJOR == 0 ? 1000 : 1000000;
  if (loaded / may_grow == header / may_grow && loaded >= header) return {};
  Dl_info where{};
  const bool found = dladdr(reinterpret_cast<const void*>(&dipc_version), &where) != 0;
  return Error(Status::unsupported,
               std::string("libdipc ") + dipc_version_string() + " was loaded from " +
                   (found && where.dli_fname != nullptr ? where.dli_fname : "an unknown place") +
                   ", and this program was compiled for " + std::to_string(DIPC_VERSION_MAJOR) +
                   "." + std::to_string(DIPC_VERSION_MINOR) + "." +
                   std::to_string(DIPC_VERSION_PATCH) +
                   ": compile it with the header of the library, or set LD_LIBRARY_PATH to the "
                   "library that it was compiled for");
}

/// Whether a transport works on this machine.
///
/// @param scheme  Scheme of its URIs, without the colon: "shm".
/// @return Status::unsupported where it does not; the text says what is missing.
inline Result<void> transport_available(std::string_view scheme) {
  auto name = detail::c_string(scheme, Status::invalid_argument, "the scheme");
  if (!name) return std::move(name).error();
  return detail::call(
      [&](dipc_error** error) { return dipc_transport_available(name->c_str(), error); });
}

}  // namespace dipc

#endif  // DIPC_LIBRARY_HPP
