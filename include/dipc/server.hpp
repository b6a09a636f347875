// Server: serves tables to clients.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_SERVER_HPP
#define DIPC_SERVER_HPP

#include <dipc/cancel.hpp>
#include <dipc/description.hpp>
#include <dipc/library.hpp>
#include <dipc/options.hpp>
#include <dipc/request.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace dipc {

/// Which connection a URI is for.
enum class Role : std::int32_t {
  both = DIPC_ROLE_BOTH,
  metadata = DIPC_ROLE_METADATA,
  data = DIPC_ROLE_DATA,
};

/// What a provider promises: Promise::deterministic where it gives the same batches for each call,
/// so that clients that are not libdipc may fetch metadata and bodies over two connections.
enum class Promise : std::uint32_t { nothing = 0, deterministic = DIPC_PROVIDER_DETERMINISTIC };

/// A figure of a server.
enum class ServerStat : std::int32_t {
  connections = DIPC_SERVER_STAT_CONNECTIONS,            ///< Open now.
  streams_active = DIPC_SERVER_STAT_STREAMS_ACTIVE,      ///< Served now.
  streams_served = DIPC_SERVER_STAT_STREAMS_SERVED,      ///< Begun since the start.
  batches = DIPC_SERVER_STAT_BATCHES,                    ///< Sent since the start.
  bytes_lent = DIPC_SERVER_STAT_BYTES_LENT,              ///< Lent where they lay.
  bytes_copied = DIPC_SERVER_STAT_BYTES_COPIED,          ///< Copied into regions, and lent.
  bytes_sent = DIPC_SERVER_STAT_BYTES_SENT,              ///< Sent through connections.
  lent_outstanding = DIPC_SERVER_STAT_LENT_OUTSTANDING,  ///< Buffers not yet given back.
  region_bytes = DIPC_SERVER_STAT_REGION_BYTES,          ///< Of regions that this process or a client has.
  /// Copied on a GPU and lent from there.
  bytes_copied_on_device = DIPC_SERVER_STAT_BYTES_COPIED_ON_DEVICE,
  /// Copied from a GPU to the host, then lent or sent.
  bytes_staged = DIPC_SERVER_STAT_BYTES_STAGED,
  rows = DIPC_SERVER_STAT_ROWS,                                  ///< Of the batches sent.
  batches_received = DIPC_SERVER_STAT_BATCHES_RECEIVED,          ///< Sent by clients.
  rows_received = DIPC_SERVER_STAT_ROWS_RECEIVED,                ///< Of these batches.
  bytes_received = DIPC_SERVER_STAT_BYTES_RECEIVED,              ///< Of these, lent ones included.
  connections_opened = DIPC_SERVER_STAT_CONNECTIONS_OPENED,      ///< Since the start.
  connections_refused = DIPC_SERVER_STAT_CONNECTIONS_REFUSED,    ///< Not accepted.
  requests_finished = DIPC_SERVER_STAT_REQUESTS_FINISHED,        ///< Ended well.
  requests_failed = DIPC_SERVER_STAT_REQUESTS_FAILED,            ///< Begun, and ended otherwise.
  requests_refused = DIPC_SERVER_STAT_REQUESTS_REFUSED,          ///< Not begun.
  rows_read = DIPC_SERVER_STAT_ROWS_READ,                        ///< Given to be sent.
};

namespace detail {

/// The dipc_provider of a callable: `F` is called by several threads at once, hence const.
template <class F, bool Catches>
std::int32_t provide(void* userdata, dipc_request* request, ArrowDeviceArrayStream* out) {
  Result<Stream> stream = guarded<Catches>([&]() -> Result<Stream> {
    const F& provider = *static_cast<const F*>(userdata);
    return to_stream(provider(RequestRef(request)));
  });
  if (!stream) {
    fail_request(request, stream.error());
    return 1;
  }
  Generated::tie(*stream, request);
  stream->move_to(out);
  return 0;
}

}  // namespace detail

/// Serves tables. Every call is allowed from any thread, also several at once. Destroying it stops
/// it at once; stop() does so in peace.
class Server {
 public:
  /// Makes a server that serves nothing yet; it starts two threads.
  static Result<Server> make(const ServerOptions& options = {}) {
    auto version = check_version();
    if (!version) return std::move(version).error();
    auto built = detail::build(options);
    if (!built) return std::move(built).error();
    auto raw = detail::call_for<dipc_server*>([&](dipc_server** out, dipc_error** error) {
      return dipc_server_new(built->get(), out, error);
    });
    if (!raw) return std::move(raw).error();
    return Server(*raw);
  }

  /// Listens, and gives the whole URI that clients need. May be called for several addresses.
  ///
  /// @param uri  "shm:@name", "shm:/path", or an address of another transport.
  /// @return Status::address_in_use: a live server listens there. dipc_server_listen() has more.
  Result<std::string> listen(std::string_view uri) const {
    auto text = detail::c_string(uri, Status::invalid_uri, "the URI");
    if (!text) return std::move(text).error();
    std::string bound(DIPC_URI_BYTES, '\0');
    std::size_t length = 0;
    auto done = detail::call([&](dipc_error** error) {
      return dipc_server_listen(raw_.get(), text->c_str(), bound.data(), bound.size(), &length,
                                error);
    });
    if (!done) return std::move(done).error();
    bound.resize(length);
    return bound;
  }

  /// Listens by a socket that listens already, as a service manager hands over, and gives the whole
  /// URI that clients need.
  ///
  /// @param scheme  "shm": `fd` is a Unix stream socket. "tcp", "tls": a TCP socket.
  /// @param fd      Closed by the server on success only.
  /// @return Status::invalid_argument: no such socket. dipc_server_listen_fd() has more.
  Result<std::string> listen_fd(std::string_view scheme, int fd) const {
    auto text = detail::c_string(scheme, Status::invalid_argument, "the scheme");
    if (!text) return std::move(text).error();
    std::string bound(DIPC_URI_BYTES, '\0');
    std::size_t length = 0;
    auto done = detail::call([&](dipc_error** error) {
      return dipc_server_listen_fd(raw_.get(), text->c_str(), fd, bound.data(), bound.size(),
                                   &length, error);
    });
    if (!done) return std::move(done).error();
    bound.resize(length);
    return bound;
  }

  /// Whether it takes requests: it listens, and neither drains nor was stopped.
  [[nodiscard]] bool is_ready() const noexcept { return dipc_server_is_ready(raw_.get()); }

  /// The URI of the first address it listens at, for one role.
  Result<std::string> location(Role role = Role::both) const {
    return detail::call_for_text([&](char* buffer, std::size_t size, std::size_t* length,
                                     dipc_error** error) {
      return dipc_server_location(raw_.get(), static_cast<std::int32_t>(role), buffer, size,
                                  length, error);
    });
  }

  /// Serves a ticket by calling `provider` for each stream. The thread of the call also reads
  /// the stream, and serves no other one meanwhile: `provider` may block.
  ///
  /// @param ticket    What clients ask for: any bytes.
  /// @param provider  Called with a RequestRef, by several threads at once. Returns a Stream, a
  ///                  HostStream, whatever StreamTraits knows, or a Result of one. An Error that it
  ///                  returns, or what it throws, is what the client gets. Destroyed when the
  ///                  ticket was withdrawn or replaced and the last call has returned.
  /// @return Status::already_exists: the ticket is served.
  template <class F, bool Catches = DIPC_CPP_EXCEPTIONS>
  Result<void> serve(std::string_view ticket, F&& provider,
                     Promise promise = Promise::nothing) const {
    return provide_by<Catches>(
        std::forward<F>(provider),
        [&](dipc_provider call, void* userdata, dipc_finalizer finalizer, dipc_error** error) {
          return dipc_server_serve(raw_.get(), detail::byte_pointer(ticket), ticket.size(), call,
                                   userdata, finalizer, static_cast<std::uint32_t>(promise), error);
        });
  }

  /// Serves every ticket that is not served by itself: queries, commands, keys of partitions. A
  /// handler set before is replaced; its streams go on.
  ///
  /// RequestRef::verb() says what the client wants with RequestRef::ticket(): the table, a
  /// Description of it, a Description with an endpoint for each ticket that begins so, or to send a
  /// table: then the handler reads RequestRef::source() and returns `Stream()`. A handler
  /// that does not know a verb returns an Error of Status::unsupported.
  ///
  /// @param handler  As the provider of serve(). Destroyed when it was replaced and the last call
  ///                 has returned.
  template <class F, bool Catches = DIPC_CPP_EXCEPTIONS>
  Result<void> set_handler(F&& handler, Promise promise = Promise::nothing) const {
    return provide_by<Catches>(
        std::forward<F>(handler),
        [&](dipc_provider call, void* userdata, dipc_finalizer finalizer, dipc_error** error) {
          return dipc_server_set_handler(raw_.get(), call, userdata, finalizer,
                                         static_cast<std::uint32_t>(promise), error);
        });
  }

  /// Reads the certificates again: connections made from now on go by them.
  ///
  /// @return Where a file cannot be used the server goes on with what it had.
  Result<void> reload_tls() const {
    return detail::call(
        [&](dipc_error** error) { return dipc_server_reload_tls(raw_.get(), error); });
  }

  /// Removes the handler, if there is one: tickets that are not served are unknown again.
  Result<void> remove_handler() const {
    return detail::call([&](dipc_error** error) {
      return dipc_server_set_handler(raw_.get(), nullptr, nullptr, nullptr, 0, error);
    });
  }

  /// Serves a ticket with a table that can be fetched any number of times, by many clients at once.
  ///
  /// @param schema   Moved on success only, as are the batches.
  /// @param batches  Released when the ticket was withdrawn or replaced and the last client gave
  ///                 them back.
  Result<void> publish(std::string_view ticket, Schema&& schema,
                       std::vector<DeviceArray>&& batches) const {
    return publish_by(dipc_server_publish, ticket, std::move(schema), std::move(batches));
  }

  /// Publishes what a stream gives, or whatever StreamTraits knows; it is read to its end now.
  template <class T>
  Result<void> publish(std::string_view ticket, T&& source) const {
    return publish_all_by(dipc_server_publish, ticket, std::forward<T>(source));
  }

  /// publish() in the place of what the ticket stands for, if anything. At no moment is the ticket
  /// unknown, and streams under way go on with what they began.
  Result<void> replace(std::string_view ticket, Schema&& schema,
                       std::vector<DeviceArray>&& batches) const {
    return publish_by(dipc_server_replace, ticket, std::move(schema), std::move(batches));
  }

  /// The same with what a stream gives, or whatever StreamTraits knows.
  template <class T>
  Result<void> replace(std::string_view ticket, T&& source) const {
    return publish_all_by(dipc_server_replace, ticket, std::forward<T>(source));
  }

  /// Says what a ticket of serve() or serve_pull() stands for, to clients that ask by
  /// Client::describe() and Client::list(). Without endpoints the ticket itself is the only one.
  ///
  /// @return Status::not_found: the server has no such ticket.
  Result<void> set_description(std::string_view ticket, const Description& description) const {
    auto built = detail::build(description);
    if (!built) return std::move(built).error();
    return detail::call([&](dipc_error** error) {
      return dipc_server_set_description(raw_.get(), detail::byte_pointer(ticket), ticket.size(),
                                         built->get(), error);
    });
  }

  /// Serves a ticket in the pull form: its requests come out of next_request(), and no thread of
  /// the library calls the host.
  Result<void> serve_pull(std::string_view ticket) const {
    return detail::call([&](dipc_error** error) {
      return dipc_server_serve_pull(raw_.get(), detail::byte_pointer(ticket), ticket.size(),
                                    error);
    });
  }

  /// Serves every ticket that is not served by itself in the pull form. A handler set before is
  /// replaced.
  Result<void> set_handler_pull() const {
    return detail::call(
        [&](dipc_error** error) { return dipc_server_set_handler_pull(raw_.get(), error); });
  }

  /// Pull form: waits for the next request; nothing where none came in time.
  Result<std::optional<Request>> next_request(std::chrono::nanoseconds timeout = forever,
                                              const Cancel* cancel = nullptr) const {
    auto raw = detail::call_for<dipc_request*>([&](dipc_request** out, dipc_error** error) {
      return dipc_server_next_request(raw_.get(), detail::nanoseconds(timeout),
                                      detail::raw_or_null(cancel), out, error);
    });
    if (!raw) return std::move(raw).error();
    if (*raw == nullptr) return std::optional<Request>();
    return std::optional<Request>(Request(*raw));
  }

  /// Pull form: a descriptor for poll(), epoll and event loops, readable while a request waits and
  /// once the server was stopped: call next_request() with a time of zero then. It is the server's:
  /// not to be closed or read from.
  Result<int> request_fd() const {
    return detail::call_for<int>([this](int* out, dipc_error** error) {
      return dipc_server_request_fd(raw_.get(), out, error);
    });
  }

  /// Pull form: releases, on this thread, the arrays that clients have given back; says how many.
  Result<std::size_t> drain_releases() const {
    return detail::call_for<std::size_t>([&](std::size_t* out, dipc_error** error) {
      return dipc_server_drain_releases(raw_.get(), out, error);
    });
  }

  /// Stops serving a ticket. Streams under way go on.
  Result<void> withdraw(std::string_view ticket) const {
    return detail::call([&](dipc_error** error) {
      return dipc_server_withdraw(raw_.get(), detail::byte_pointer(ticket), ticket.size(), error);
    });
  }

  /// The tickets served now, in byte order.
  Result<std::vector<std::string>> tickets() const {
    std::vector<std::string> all;
    for (;;) {
      auto ticket = detail::call_for_text([&](char* buffer, std::size_t size, std::size_t* length,
                                              dipc_error** error) {
        return dipc_server_ticket(raw_.get(), all.size(), reinterpret_cast<std::uint8_t*>(buffer),
                                  size, length, error);
      });
      if (ticket.status() == Status::not_found) return all;
      if (!ticket) return std::move(ticket).error();
      all.push_back(*std::move(ticket));
    }
  }

  Result<std::uint64_t> stat(ServerStat stat) const {
    return detail::call_for<std::uint64_t>([&](std::uint64_t* out, dipc_error** error) {
      return dipc_server_stat(raw_.get(), static_cast<std::int32_t>(stat), out, error);
    });
  }

  /// Refuses requests from now on (Status::busy); streams under way go on. stop() ends them.
  ///
  /// @param elsewhere  URIs of servers where clients may ask instead, best first; at most 16.
  Result<void> drain(Span<const std::string_view> elsewhere = {}) const {
    std::vector<std::string> texts;
    for (const std::string_view uri : elsewhere) {
      auto text = detail::c_string(uri, Status::invalid_uri, "the URI");
      if (!text) return std::move(text).error();
      texts.emplace_back(*std::move(text));
    }
    std::vector<const char*> pointers;
    for (const std::string& text : texts) pointers.push_back(text.c_str());
    return detail::call([&](dipc_error** error) {
      return dipc_server_drain(raw_.get(), pointers.data(), pointers.size(), error);
    });
  }

  /// All figures at once, with their histograms: see dipc_server_stats in dipc.h.
  Result<dipc_server_stats> stats() const {
    return detail::call_for<dipc_server_stats>([&](dipc_server_stats* out, dipc_error** error) {
      return dipc_server_get_stats(raw_.get(), out, sizeof *out, error);
    });
  }

  /// The figures of the requests with one label: a ticket, or what RequestRef::set_label() says.
  ///
  /// @return Status::not_found: nothing was counted under this label.
  Result<dipc_server_stats> stats(std::string_view label) const {
    auto text = detail::c_string(label, Status::invalid_argument, "the label");
    if (!text) return std::move(text).error();
    return detail::call_for<dipc_server_stats>([&](dipc_server_stats* out, dipc_error** error) {
      return dipc_server_get_label_stats(raw_.get(), text->c_str(), out, sizeof *out, error);
    });
  }

  /// All figures in Prometheus' text format, version 0.0.4.
  Result<std::string> stats_text() const {
    return detail::call_for_text([&](char* buffer, std::size_t size, std::size_t* length,
                                     dipc_error** error) {
      return dipc_server_stats_text(raw_.get(), buffer, size, length, error);
    });
  }

  /// Stops: no new streams; those under way may end until the deadline, then they are cut. Arrays
  /// that clients hold stay valid.
  ///
  /// @return Status::timeout: a provider had still not returned a moment after the cut; it is
  ///         destroyed when it returns.
  Result<void> stop(std::chrono::nanoseconds deadline = std::chrono::nanoseconds::zero()) const {
    return detail::call([&](dipc_error** error) {
      return dipc_server_stop(raw_.get(), detail::nanoseconds(deadline), error);
    });
  }

  /// The handle, which stays this object's.
  [[nodiscard]] const dipc_server* raw() const noexcept { return raw_.get(); }

 private:
  explicit Server(dipc_server* raw) noexcept : raw_(raw) {}

  /// Calls `function(provider, userdata, finalizer, error)` with a callable as dipc.h takes it.
  template <bool Catches, class F, class Function>
  static Result<void> provide_by(F&& provider, Function&& function) {
    using Provider = std::decay_t<F>;
    static_assert(std::is_invocable_v<const Provider&, RequestRef>,
                  "a provider takes a dipc::RequestRef and is called by several threads at once: "
                  "its operator() must be const (no mutable lambda)");
    auto owned = std::make_unique<Provider>(std::forward<F>(provider));
    auto done = detail::call([&](dipc_error** error) {
      return std::forward<Function>(function)(
          &detail::provide<Provider, Catches>, owned.get(),
          [](void* userdata) { delete static_cast<Provider*>(userdata); }, error);
    });
    if (done.ok()) static_cast<void>(owned.release());  // the finalizer's now
    return done;
  }

  /// Publishes a table by dipc_server_publish() or dipc_server_replace().
  Result<void> publish_by(decltype(&dipc_server_publish) function, std::string_view ticket,
                          Schema&& schema, std::vector<DeviceArray>&& batches) const {
    std::vector<ArrowDeviceArray> raw(batches.size());
    for (std::size_t i = 0; i < raw.size(); i++) raw[i] = *batches[i];
    auto done = detail::call([&](dipc_error** error) {
      return function(raw_.get(), detail::byte_pointer(ticket), ticket.size(), schema.get(),
                      raw.data(), raw.size(), error);
    });
    if (!done) return done;
    // They were moved out of `raw`: what it was copied from does not own them any more.
    for (DeviceArray& batch : batches) detail::forget(*batch.get());
    batches.clear();
    return done;
  }

  /// Reads a stream to its end, and publishes its table.
  template <class T>
  Result<void> publish_all_by(decltype(&dipc_server_publish) function, std::string_view ticket,
                              T&& source) const {
    auto opened = to_stream(std::forward<T>(source));
    if (!opened) return std::move(opened).error();
    Stream stream = *std::move(opened);
    auto schema = stream.schema();
    if (!schema) return std::move(schema).error();
    std::vector<DeviceArray> batches;
    for (;;) {
      auto batch = stream.next();
      if (!batch) return std::move(batch).error();
      if (!*batch) break;
      batches.push_back(*std::move(batch));
    }
    return publish_by(function, ticket, *std::move(schema), std::move(batches));
  }

  detail::Handle<dipc_server, dipc_server_free> raw_;
};

}  // namespace dipc

#endif  // DIPC_SERVER_HPP
