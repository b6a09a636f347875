// Client: fetches tables from servers.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_CLIENT_HPP
#define DIPC_CLIENT_HPP

#include <dipc/cancel.hpp>
#include <dipc/library.hpp>
#include <dipc/options.hpp>
#include <dipc/span.hpp>
#include <dipc/stream.hpp>

#include <array>
#include <string_view>
#include <utility>

namespace dipc {

/// A figure of a client.
enum class ClientStat : std::int32_t {
  streams = DIPC_CLIENT_STAT_STREAMS,                    ///< Asked for since the start.
  connections_made = DIPC_CLIENT_STAT_CONNECTIONS_MADE,  ///< Since the start.
  connections_idle = DIPC_CLIENT_STAT_CONNECTIONS_IDLE,  ///< Kept for the next stream.
};

/// Fetches tables, and keeps connections for the next one. Every call is allowed from any thread,
/// also several at once. Streams and arrays outlive it.
class Client {
 public:
  /// Makes a client, which starts one thread.
  static Result<Client> make(const ClientOptions& options = {}) {
    auto version = check_version();
    if (!version) return std::move(version).error();
    auto built = detail::build(options);
    if (!built) return std::move(built).error();
    auto raw = detail::call_for<dipc_client*>([&](dipc_client** out, dipc_error** error) {
      return dipc_client_new(built->get(), out, error);
    });
    if (!raw) return std::move(raw).error();
    return Client(*raw);
  }

  /// Asks a server for a ticket, and returns once the schema is there or the reason why there is
  /// none: Status::unreachable, Status::not_found and others (dipc_client_get() in dipc.h).
  ///
  /// @param uri      Where the server is: the whole URI that Server::listen() gave.
  /// @param ticket   What is asked for: any bytes.
  /// @param options  Timeouts, window and more.
  /// @param cancel   Ends this call, and calls of the stream, from another thread; may be freed
  ///                 before the stream is.
  Result<Stream> get(std::string_view uri, std::string_view ticket, const GetOptions& options = {},
                     const Cancel* cancel = nullptr) const {
    return get_from(Span<const std::string_view>(&uri, 1), ticket, options, cancel);
  }

  /// The same where metadata and bodies come over two connections.
  Result<Stream> get_split(std::string_view metadata_uri, std::string_view data_uri,
                           std::string_view ticket, const GetOptions& options = {},
                           const Cancel* cancel = nullptr) const {
    const std::array<std::string_view, 2> uris = {metadata_uri, data_uri};
    return get_from(uris, ticket, options, cancel);
  }

  Result<std::uint64_t> stat(ClientStat stat) const {
    return detail::call_for<std::uint64_t>([&](std::uint64_t* out, dipc_error** error) {
      return dipc_client_stat(raw_.get(), static_cast<std::int32_t>(stat), out, error);
    });
  }

  /// The handle, which stays this object's.
  [[nodiscard]] const dipc_client* raw() const noexcept { return raw_.get(); }

 private:
  explicit Client(dipc_client* raw) noexcept : raw_(raw) {}

  Result<Stream> get_from(Span<const std::string_view> uris, std::string_view ticket,
                          const GetOptions& options, const Cancel* cancel) const {
    std::array<std::string, 2> texts;
    std::array<const char*, 2> pointers = {};
    for (std::size_t i = 0; i < uris.size(); i++) {
      auto text = detail::c_string(uris[i], Status::invalid_uri, "the URI");
      if (!text) return std::move(text).error();
      texts[i] = *std::move(text);
      pointers[i] = texts[i].c_str();
    }
    auto built = detail::build(options);
    if (!built) return std::move(built).error();
    Stream stream;
    auto done = detail::call([&](dipc_error** error) {
      return dipc_client_get(raw_.get(), pointers.data(), uris.size(),
                             detail::byte_pointer(ticket), ticket.size(), built->get(),
                             detail::raw_or_null(cancel), stream.get(), error);
    });
    if (!done) return std::move(done).error();
    return stream;
  }

  detail::Handle<dipc_client, dipc_client_free> raw_;
};

}  // namespace dipc

#endif  // DIPC_CLIENT_HPP
