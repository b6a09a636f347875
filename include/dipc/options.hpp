// What servers, clients, streams and arenas are told when they are made. A member that is not set
// leaves the library's default, which dipc.h names.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_OPTIONS_HPP
#define DIPC_OPTIONS_HPP

#include <dipc/authorizer.hpp>
#include <dipc/detail.hpp>
#include <dipc/headers.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace dipc {

/// How bodies travel.
enum class Body : std::int32_t {
  automatic = DIPC_BODY_AUTO,  ///< Lent where that is possible and worth it.
  packed = DIPC_BODY_PACKED,   ///< Always sent as bytes.
  lent = DIPC_BODY_LENT,       ///< Lent wherever that is possible.
};

enum class Compression : std::int32_t {
  none = DIPC_COMPRESSION_NONE,
  lz4 = DIPC_COMPRESSION_LZ4,
  zstd = DIPC_COMPRESSION_ZSTD,
};

/// How much of what arrives is checked.
enum class Validation : std::int32_t {
  automatic = DIPC_VALIDATION_AUTO,       ///< The values as well for servers of other users.
  structure = DIPC_VALIDATION_STRUCTURE,  ///< Lengths, counts and ranges: no cost per row.
  full = DIPC_VALIDATION_FULL,            ///< Values as well.
};

/// Where memory is: on the host, or on a device of some number.
struct Device {
  constexpr Device(ArrowDeviceType device_type = ARROW_DEVICE_CPU, std::int64_t device_id = 0) noexcept
      : type(device_type), id(device_id) {}

  /// A CUDA device, as this process's driver counts.
  static constexpr Device cuda(std::int64_t id = 0) noexcept { return {ARROW_DEVICE_CUDA, id}; }
  /// For arrays to be fetched: where the server has them, if this process reaches that without a
  /// copy, otherwise on the host.
  static constexpr Device as_sent() noexcept { return {DIPC_DEVICE_AS_SENT, 0}; }

  ArrowDeviceType type;  ///< As ARROW_DEVICE_CPU.
  std::int64_t id;       ///< Of no meaning for the host.
};

/// What only one transport knows: "ucx.TLS" and "tcp".
using TransportOptions = std::vector<std::pair<std::string, std::string>>;

/// A certificate and its private key: paths of PEM files.
struct Identity {
  std::string certificate_file;  ///< The certificate, then those that lead to its authority.
  std::string key_file;
};

/// Given to Server::make().
struct ServerOptions {
  std::optional<std::size_t> max_streams = {};         ///< Streams at once; one more is refused.
  /// Streams that providers are busy with, those included whose clients have gone.
  std::optional<std::size_t> max_providers = {};
  std::optional<Authorizer> authorizer = {};  ///< Otherwise who can connect may do everything.
  /// Without an `authorizer`: Server::next_request() gives each request first for the host to
  /// decide about it (Request::is_undecided()). The host must then take requests.
  std::optional<bool> authorizer_pull = {};
  std::optional<std::size_t> max_connections = {};  ///< One more is refused.
  /// Connections, and streams at once, of one other machine or of one other user of this machine.
  std::optional<std::size_t> max_connections_per_peer = {};
  std::optional<std::size_t> max_streams_per_peer = {};
  /// Streams at once of one connection, of clients that have many on one.
  std::optional<std::size_t> max_streams_per_connection = {};
  /// Bytes of long requests, of all clients together, that have come in part.
  std::optional<std::uint64_t> max_request_bytes = {};
  /// How long a stream may wait for its client while others want its place; here and below
  /// `forever` is no limit.
  std::optional<std::chrono::nanoseconds> credit_timeout = {};
  /// Of the handshake of tls, and until all connections of one stream have come.
  std::optional<std::chrono::nanoseconds> handshake_timeout = {};
  std::optional<std::chrono::nanoseconds> request_timeout = {};  ///< Of a connection's first request.
  /// How long a connection is kept, up to twice this, over which nothing is asked for.
  std::optional<std::chrono::nanoseconds> idle_timeout = {};
  std::optional<std::uint64_t> max_region_bytes = {};  ///< Of all regions that copies are lent from.
  std::optional<std::uint64_t> region_bytes = {};      ///< Of one such region.
  std::optional<std::chrono::nanoseconds> region_idle = {};  ///< How long an unused one is kept.
  std::optional<std::uint64_t> inline_bytes = {};      ///< Bodies up to this travel as bytes.
  std::optional<std::uint64_t> lent_limit_bytes = {};  ///< Of copies lent to one connection.
  std::optional<bool> any_user = {};                   ///< Admits every user of this machine.
  std::optional<Body> body = {};
  std::optional<Compression> compression = {};
  std::optional<bool> allow_remote = {};     ///< tcp may listen where other machines can connect.
  std::optional<bool> trusted_network = {};  ///< ucx may listen: whoever can connect is trusted.
  std::optional<Identity> tls = {};          ///< The server's certificate, for tls.
  /// A PEM file of authorities: clients must have a certificate of one of them.
  std::optional<std::string> tls_client_ca = {};
  std::optional<std::chrono::nanoseconds> spin = {};  ///< How long the I/O thread looks for work.
  TransportOptions transport = {};
};

/// Given to Client::make().
struct ClientOptions {
  std::optional<bool> any_user = {};  ///< Trusts servers of every user of this machine.
  std::optional<std::chrono::nanoseconds> idle_timeout = {};  ///< A connection without a stream is kept.
  std::optional<std::size_t> max_idle = {};  ///< Connections without a stream kept for each server.
  /// Connections to one server that takes many streams on one: past that streams share. Otherwise
  /// each stream has its own.
  std::optional<std::size_t> connections = {};
  std::optional<Identity> tls = {};          ///< The client's certificate, for servers that ask.
  std::optional<std::string> tls_ca = {};    ///< A PEM file of authorities; otherwise the system's.
  /// The name that a server's certificate must have; otherwise the host of the URI.
  std::optional<std::string> tls_server_name = {};
  TransportOptions transport = {};
};

/// How far a server may run ahead of what the consumer has taken.
struct Window {
  std::uint64_t batches;  ///< Record batches; at least 1.
  std::uint64_t bytes;    ///< Bytes of bodies; one batch is always admitted.
};

/// Given to Client::get(), Client::describe() and Client::list().
struct GetOptions {
  /// Up to the first answer. A note that the request has arrived is one, which the server sends where
  /// its provider takes longer: only `deadline` and `stall_timeout` end the wait then.
  std::optional<std::chrono::nanoseconds> connect_timeout = {};
  std::optional<std::chrono::nanoseconds> stall_timeout = {};  ///< Of a server that is silent.
  std::optional<std::chrono::nanoseconds> deadline = {};  ///< Up to the end of the stream.
  Headers headers = {};  ///< For the server's host. A server that knows no headers refuses them.
  /// Sends the header "authorization" also where others may read it: over tcp beyond the loopback
  /// interface, and over ucx. Otherwise it is refused there with Status::permission.
  std::optional<bool> send_secrets = {};
  /// Has each message checked by a checksum over tcp and ucx: a network could change it unseen.
  std::optional<bool> checksums = {};
  /// Lets Client::get_parts() follow a description of another server's to ucx addresses, whose peers
  /// can read and write this process's memory.
  std::optional<bool> trusted_network = {};
  /// The columns that are wanted, in this order; none named: rows without columns. Others are not
  /// sent. A get fails with Status::invalid_argument if the table does not have one, or has it twice.
  std::optional<std::vector<std::string>> columns = {};
  std::optional<std::uint64_t> first_row = {};  ///< The first row wanted; otherwise row 0.
  std::optional<std::uint64_t> rows = {};       ///< The most rows wanted; otherwise all.
  /// The rows that are wanted: the bytes of a substrait.ExtendedExpression of booleans, at most
  /// 64 KiB. The server evaluates it, and `first_row` and `rows` count the rows that pass. A get fails
  /// with Status::invalid_argument if the message is malformed or the table does not have a column, and
  /// with Status::unsupported for what filters do not support: see dipc_get_options_set_filter() in
  /// dipc.h.
  std::optional<std::string> filter = {};
  std::optional<Window> window = {};
  std::optional<std::uint64_t> lent_limit_bytes = {};
  std::optional<std::uint64_t> message_limit_bytes = {};  ///< What one message may become here.
  std::optional<Device> device = {};  ///< Where arrays shall be; otherwise on the host.
  std::optional<Validation> validation = {};
  std::optional<std::chrono::nanoseconds> spin = {};  ///< How long a wait looks before it sleeps.
  std::optional<std::uint32_t> connections = {};      ///< Connections that carry one stream (tcp).
};

/// Given to Client::put() and Client::put_open().
struct PutOptions {
  /// Up to the first answer. A note that the request has arrived is one, which the server sends where
  /// its provider takes longer: only `deadline` and `stall_timeout` end the wait then.
  std::optional<std::chrono::nanoseconds> connect_timeout = {};
  /// Of a server that takes nothing and says nothing.
  std::optional<std::chrono::nanoseconds> stall_timeout = {};
  std::optional<std::chrono::nanoseconds> deadline = {};  ///< Up to the end of the table.
  Headers headers = {};                     ///< For the server's host.
  std::optional<bool> send_secrets = {};    ///< As GetOptions::send_secrets.
  /// As GetOptions::checksums. For an exchange these options decide for both directions.
  std::optional<bool> checksums = {};
  std::optional<Body> body = {};
  std::optional<Compression> compression = {};
  std::optional<std::uint16_t> connections = {};  ///< Connections that carry one table (tcp).
};

/// Given to Arena::make().
struct ArenaOptions {
  std::optional<std::uint64_t> region_bytes = {};  ///< Of one region; a client maps whole ones.
  std::optional<std::uint64_t> max_bytes = {};     ///< Of all regions together.
};

namespace detail {

/// Makes options of dipc.h and calls their setters until one fails.
template <class T, auto Free>
class OptionsBuilder {
 public:
  explicit OptionsBuilder(dipc_status (*make)(T**, dipc_error**)) {
    T* raw = nullptr;
    result_ = call([&](dipc_error** error) { return make(&raw, error); });
    raw_.reset(raw);
  }

  /// Calls `setter(options, value, error)` where the value was set.
  template <class V, class Setter>
  OptionsBuilder& set(const std::optional<V>& value, Setter&& setter) {
    if (!value.has_value()) return *this;
    return run([&](dipc_error** error) { return setter(raw_.get(), plain(*value), error); });
  }

  /// Calls `setter(options, text, error)` where the text was set.
  template <class Setter>
  OptionsBuilder& set_text(const std::optional<std::string>& text, Setter&& setter) {
    if (!text.has_value() || !is_whole(*text)) return *this;
    return run([&](dipc_error** error) { return setter(raw_.get(), text->c_str(), error); });
  }

  /// Calls `setter(options, certificate, key, error)` where both were set.
  template <class Setter>
  OptionsBuilder& set_identity(const std::optional<Identity>& identity, Setter&& setter) {
    if (!identity.has_value() || !is_whole(identity->certificate_file) ||
        !is_whole(identity->key_file)) {
      return *this;
    }
    return run([&](dipc_error** error) {
      return setter(raw_.get(), identity->certificate_file.c_str(), identity->key_file.c_str(),
                    error);
    });
  }

  /// Calls `setter(options, name, value, error)` for each.
  template <class Setter>
  OptionsBuilder& set_each(const TransportOptions& options, Setter&& setter) {
    for (const auto& [name, value] : options) {
      if (!is_whole(name) || !is_whole(value)) break;
      run([&, &name = name, &value = value](dipc_error** error) {
        return setter(raw_.get(), name.c_str(), value.c_str(), error);
      });
    }
    return *this;
  }

  template <class F>
  OptionsBuilder& run(F&& function) {
    if (result_.ok()) result_ = call(std::forward<F>(function));
    return *this;
  }

  [[nodiscard]] T* raw() const noexcept { return raw_.get(); }

  Result<Handle<T, Free>> build() {
    if (!result_) return result_.error();
    return std::move(raw_);
  }

 private:
  /// Whether dipc.h would read all of a text; otherwise the options fail.
  bool is_whole(std::string_view text) {
    auto whole = c_string(text, Status::invalid_argument, "a text of the options");
    if (!whole && result_.ok()) result_ = std::move(whole).error();
    return result_.ok();
  }

  template <class V>
  static auto plain(V value) noexcept {
    if constexpr (std::is_enum_v<V>) {
      return static_cast<std::underlying_type_t<V>>(value);
    } else if constexpr (std::is_same_v<V, std::chrono::nanoseconds>) {
      return nanoseconds(value);
    } else {
      return value;
    }
  }

  Handle<T, Free> raw_;
  Result<void> result_;
};

inline Result<Handle<dipc_server_options, dipc_server_options_free>> build(
    const ServerOptions& options) {
  OptionsBuilder<dipc_server_options, dipc_server_options_free> builder(dipc_server_options_new);
  builder.set(options.max_streams, dipc_server_options_set_max_streams)
      .set(options.max_providers, dipc_server_options_set_max_providers)
      .set(options.max_connections, dipc_server_options_set_max_connections)
      .set(options.max_connections_per_peer, dipc_server_options_set_max_connections_per_peer)
      .set(options.max_streams_per_peer, dipc_server_options_set_max_streams_per_peer)
      .set(options.max_streams_per_connection,
           dipc_server_options_set_max_streams_per_connection)
      .set(options.max_request_bytes, dipc_server_options_set_max_request_bytes)
      .set(options.credit_timeout, dipc_server_options_set_credit_timeout_ns)
      .set(options.handshake_timeout, dipc_server_options_set_handshake_timeout_ns)
      .set(options.request_timeout, dipc_server_options_set_request_timeout_ns)
      .set(options.idle_timeout, dipc_server_options_set_idle_timeout_ns)
      .set(options.max_region_bytes, dipc_server_options_set_max_region_bytes)
      .set(options.region_bytes, dipc_server_options_set_region_bytes)
      .set(options.region_idle, dipc_server_options_set_region_idle_ns)
      .set(options.inline_bytes, dipc_server_options_set_inline_bytes)
      .set(options.lent_limit_bytes, dipc_server_options_set_lent_limit_bytes)
      .set(options.any_user, dipc_server_options_set_any_user)
      .set(options.authorizer_pull, dipc_server_options_set_authorizer_pull)
      .set(options.body, dipc_server_options_set_body)
      .set(options.compression, dipc_server_options_set_compression)
      .set(options.allow_remote, dipc_server_options_set_allow_remote)
      .set(options.trusted_network, dipc_server_options_set_trusted_network)
      .set_identity(options.tls, dipc_server_options_set_tls)
      .set_text(options.tls_client_ca, dipc_server_options_set_tls_client_ca)
      .set(options.spin, dipc_server_options_set_spin_ns)
      .set_each(options.transport, dipc_server_options_set_transport);
  if (options.authorizer.has_value()) {
    auto owned = std::make_unique<Authorizer>(*options.authorizer);
    builder.run([&](dipc_error** error) {
      const dipc_status status = dipc_server_options_set_authorizer(
          builder.raw(), authorize, owned.get(),
          [](void* userdata) { delete static_cast<Authorizer*>(userdata); }, error);
      if (status == DIPC_OK) static_cast<void>(owned.release());  // the finalizer's now
      return status;
    });
  }
  return builder.build();
}

inline auto build(const ClientOptions& options) {
  return OptionsBuilder<dipc_client_options, dipc_client_options_free>(dipc_client_options_new)
      .set(options.any_user, dipc_client_options_set_any_user)
      .set(options.idle_timeout, dipc_client_options_set_idle_timeout_ns)
      .set(options.max_idle, dipc_client_options_set_max_idle)
      .set(options.connections, dipc_client_options_set_connections)
      .set_identity(options.tls, dipc_client_options_set_tls)
      .set_text(options.tls_ca, dipc_client_options_set_tls_ca)
      .set_text(options.tls_server_name, dipc_client_options_set_tls_server_name)
      .set_each(options.transport, dipc_client_options_set_transport)
      .build();
}

inline Result<Handle<dipc_get_options, dipc_get_options_free>> build(const GetOptions& options) {
  OptionsBuilder<dipc_get_options, dipc_get_options_free> builder(dipc_get_options_new);
  builder.set(options.connect_timeout, dipc_get_options_set_connect_timeout_ns)
      .set(options.stall_timeout, dipc_get_options_set_stall_timeout_ns)
      .set(options.deadline, dipc_get_options_set_deadline_ns)
      .set(options.send_secrets, dipc_get_options_set_send_secrets)
      .set(options.checksums, dipc_get_options_set_checksums)
      .set(options.trusted_network, dipc_get_options_set_trusted_network)
      .set(options.lent_limit_bytes, dipc_get_options_set_lent_limit_bytes)
      .set(options.message_limit_bytes, dipc_get_options_set_message_limit_bytes)
      .set(options.validation, dipc_get_options_set_validation)
      .set(options.spin, dipc_get_options_set_spin_ns)
      .set(options.connections, dipc_get_options_set_connections);
  if (options.columns.has_value()) {
    std::vector<std::string> texts;
    std::vector<const char*> names;
    for (const std::string& name : *options.columns) {
      auto text = c_string(name, Status::invalid_argument, "the name of a column");
      if (!text) return std::move(text).error();
      texts.push_back(*std::move(text));
    }
    for (const std::string& text : texts) names.push_back(text.c_str());
    builder.run([&](dipc_error** error) {
      return dipc_get_options_set_columns(builder.raw(), names.data(), names.size(), error);
    });
  }
  if (options.first_row.has_value() || options.rows.has_value()) {
    builder.run([&](dipc_error** error) {
      return dipc_get_options_set_range(builder.raw(), options.first_row.value_or(0),
                                        options.rows.value_or(DIPC_ALL_ROWS), error);
    });
  }
  if (options.filter.has_value()) {
    builder.run([&](dipc_error** error) {
      return dipc_get_options_set_filter(
          builder.raw(), reinterpret_cast<const std::uint8_t*>(options.filter->data()),
          options.filter->size(), error);
    });
  }
  if (options.device.has_value()) {
    builder.run([&](dipc_error** error) {
      return dipc_get_options_set_device(builder.raw(), options.device->type, options.device->id,
                                         error);
    });
  }
  if (options.window.has_value()) {
    builder.run([&](dipc_error** error) {
      return dipc_get_options_set_window(builder.raw(), options.window->batches,
                                         options.window->bytes, error);
    });
  }
  if (!options.headers.empty()) {
    auto headers = build(options.headers);
    if (!headers) return std::move(headers).error();
    builder.run([&](dipc_error** error) {
      return dipc_get_options_set_headers(builder.raw(), headers->get(), error);
    });
  }
  return builder.build();
}

inline Result<Handle<dipc_put_options, dipc_put_options_free>> build(const PutOptions& options) {
  OptionsBuilder<dipc_put_options, dipc_put_options_free> builder(dipc_put_options_new);
  builder.set(options.connect_timeout, dipc_put_options_set_connect_timeout_ns)
      .set(options.stall_timeout, dipc_put_options_set_stall_timeout_ns)
      .set(options.deadline, dipc_put_options_set_deadline_ns)
      .set(options.send_secrets, dipc_put_options_set_send_secrets)
      .set(options.checksums, dipc_put_options_set_checksums)
      .set(options.body, dipc_put_options_set_body)
      .set(options.compression, dipc_put_options_set_compression)
      .set(options.connections, dipc_put_options_set_connections);
  if (!options.headers.empty()) {
    auto headers = build(options.headers);
    if (!headers) return std::move(headers).error();
    builder.run([&](dipc_error** error) {
      return dipc_put_options_set_headers(builder.raw(), headers->get(), error);
    });
  }
  return builder.build();
}

inline auto build(const ArenaOptions& options) {
  return OptionsBuilder<dipc_arena_options, dipc_arena_options_free>(dipc_arena_options_new)
      .set(options.region_bytes, dipc_arena_options_set_region_bytes)
      .set(options.max_bytes, dipc_arena_options_set_max_bytes)
      .build();
}

}  // namespace detail
}  // namespace dipc

#endif  // DIPC_OPTIONS_HPP
