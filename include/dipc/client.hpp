// Client: fetches tables from servers, and sends tables to them.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_CLIENT_HPP
#define DIPC_CLIENT_HPP

#include <dipc/cancel.hpp>
#include <dipc/description.hpp>
#include <dipc/generate.hpp>
#include <dipc/library.hpp>
#include <dipc/options.hpp>
#include <dipc/pending.hpp>
#include <dipc/put.hpp>
#include <dipc/span.hpp>
#include <dipc/stream.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace dipc {

/// A figure of a client.
enum class ClientStat : std::int32_t {
  streams = DIPC_CLIENT_STAT_STREAMS,                    ///< Asked for since the start.
  connections_made = DIPC_CLIENT_STAT_CONNECTIONS_MADE,  ///< Since the start.
  connections_idle = DIPC_CLIENT_STAT_CONNECTIONS_IDLE,  ///< Kept for the next stream.
};

/// Fetches and sends tables, and keeps connections for the next one. Every call is allowed from any
/// thread, also several at once. Streams, puts and arrays outlive it.
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
    const Span<const std::string_view> uris(&uri, 1);
    return open(dipc_client_get, uris, ticket, options, cancel);
  }

  /// The same where metadata and bodies come over two connections.
  Result<Stream> get_split(std::string_view metadata_uri, std::string_view data_uri,
                           std::string_view ticket, const GetOptions& options = {},
                           const Cancel* cancel = nullptr) const {
    const std::array<std::string_view, 2> uris = {metadata_uri, data_uri};
    return open(dipc_client_get, uris, ticket, options, cancel);
  }

  /// Gets a table that lies in parts, on one server or several: what describe() names as endpoints,
  /// several at once. The batches come in any order, unless Description::is_ordered. The stream has
  /// no figures, headers or descriptor.
  ///
  /// @return As describe() and get(). Status::invalid_data: the parts have different columns.
  Result<Stream> get_parts(std::string_view uri, std::string_view ticket,
                           const GetOptions& options = {}, const Cancel* cancel = nullptr) const {
    const Span<const std::string_view> uris(&uri, 1);
    return open(dipc_client_get_parts, uris, ticket, options, cancel);
  }

  /// Asks a server to take a table, and returns once its host has accepted or with the reason why
  /// not; nothing of a batch is sent before. Put::next_result() and Put::finish() then pull the
  /// batches and send them.
  ///
  /// @param uri         Where the server is.
  /// @param descriptor  Name of the table for the server's host: any bytes.
  /// @param source      A Stream, which is moved on success only, or whatever StreamTraits knows.
  /// @param options     Timeouts, headers and more.
  /// @param cancel      Ends this call, and calls of the put, from another thread; may be freed
  ///                    before the put is.
  template <class T>
  Result<Put> put(std::string_view uri, std::string_view descriptor, T&& source,
                  const PutOptions& options = {}, const Cancel* cancel = nullptr) const {
    if constexpr (std::is_same_v<std::decay_t<T>, Stream>) {
      static_assert(std::is_rvalue_reference_v<T&&>, "the stream is moved: std::move(stream)");
      return put_by(uri, options, [&](const char* const* uris, const dipc_put_options* built,
                                      dipc_put** out, dipc_error** error) {
        return dipc_client_put(raw_.get(), uris, 1, detail::byte_pointer(descriptor),
                               descriptor.size(), built, detail::raw_or_null(cancel), source.get(),
                               out, error);
      });
    } else {
      auto stream = to_stream(std::forward<T>(source));
      if (!stream) return std::move(stream).error();
      return put(uri, descriptor, *std::move(stream), options, cancel);
    }
  }

  /// The same for a table whose batches the caller sends by Put::push().
  ///
  /// @param schema       Read, not moved.
  /// @param device_type  Where the batches lie.
  Result<Put> put_open(std::string_view uri, std::string_view descriptor, const Schema& schema,
                       const PutOptions& options = {}, const Cancel* cancel = nullptr,
                       ArrowDeviceType device_type = ARROW_DEVICE_CPU) const {
    return put_by(uri, options, [&](const char* const* uris, const dipc_put_options* built,
                                    dipc_put** out, dipc_error** error) {
      return dipc_client_put_open(raw_.get(), uris, 1, detail::byte_pointer(descriptor),
                                  descriptor.size(), built, detail::raw_or_null(cancel),
                                  schema.get(), device_type, out, error);
    });
  }

  /// Sends a table and receives one, on one connection at once. Returns once the server's host has
  /// accepted or with the reason why not.
  ///
  /// @param uri             Where the server is.
  /// @param descriptor      What is asked for: any bytes.
  /// @param schema          Of the table from here. Read, not moved.
  /// @param options         Of the table from here.
  /// @param answer_options  Of the table from there: window, validation, lent limit, stall timeout
  ///                        and spinning count.
  /// @param cancel          As for put().
  /// @param device_type     Where the batches from here lie.
  Result<Exchange> exchange(std::string_view uri, std::string_view descriptor,
                            const Schema& schema, const PutOptions& options = {},
                            const GetOptions& answer_options = {}, const Cancel* cancel = nullptr,
                            ArrowDeviceType device_type = ARROW_DEVICE_CPU) const {
    auto answered = detail::build(answer_options);
    if (!answered) return std::move(answered).error();
    Stream answers;
    auto put = put_by(uri, options, [&](const char* const* uris, const dipc_put_options* built,
                                        dipc_put** out, dipc_error** error) {
      return dipc_client_exchange(raw_.get(), uris, 1, detail::byte_pointer(descriptor),
                                  descriptor.size(), built, answered->get(),
                                  detail::raw_or_null(cancel), schema.get(), device_type, out,
                                  answers.get(), error);
    });
    if (!put) return std::move(put).error();
    return Exchange{*std::move(put), std::move(answers)};
  }

  /// Asks a server what a ticket stands for, without its table. A published table is known; of
  /// other tickets the server knows what Server::set_description() or its handler says.
  ///
  /// @param options  As for get(); the deadline and the headers go with this request, too.
  /// @return As get(). Status::unsupported: the server, or its handler, does not know descriptions.
  ///         Status::invalid_data: the handler answered with another table.
  Result<Description> describe(std::string_view uri, std::string_view ticket,
                               const GetOptions& options = {},
                               const Cancel* cancel = nullptr) const {
    const Span<const std::string_view> uris(&uri, 1);
    dipc_description* raw = nullptr;
    auto done = ask(uris, options, [&](const char* const* texts, const dipc_get_options* built,
                                       dipc_error** error) {
      return dipc_client_describe(raw_.get(), texts, uris.size(), detail::byte_pointer(ticket),
                                  ticket.size(), built, detail::raw_or_null(cancel), &raw, error);
    });
    if (!done) return std::move(done).error();
    const detail::DescriptionHandle owned(raw);
    return detail::description_of(raw);
  }

  /// Asks a server for its tickets that begin with `prefix`; where there are none, its handler
  /// answers.
  ///
  /// @return As describe().
  Result<std::vector<Endpoint>> list(std::string_view uri, std::string_view prefix = {},
                                     const GetOptions& options = {},
                                     const Cancel* cancel = nullptr) const {
    const Span<const std::string_view> uris(&uri, 1);
    auto stream = open(dipc_client_list, uris, prefix, options, cancel);
    if (!stream) return std::move(stream).error();
    auto schema = stream->schema();
    if (!schema) return std::move(schema).error();
    std::vector<Endpoint> all;
    for (;;) {
      auto batch = stream->next();
      if (!batch) return std::move(batch).error();
      if (!*batch) return all;
      auto read = read_list(*schema, *batch, all);
      if (!read) return std::move(read).error();
    }
  }

  /// get() without a wait, for event loops. One thread of the client connects, and waits for the
  /// answers of all servers, however many there are.
  Result<Pending<Stream>> start_get(std::string_view uri, std::string_view ticket,
                                    const GetOptions& options = {},
                                    const Cancel* cancel = nullptr) const {
    return start<Stream>(DIPC_VERB_GET, uri, ticket, options, cancel);
  }

  /// list() without a wait: read_list() reads the batches of the stream.
  Result<Pending<Stream>> start_list(std::string_view uri, std::string_view prefix = {},
                                     const GetOptions& options = {},
                                     const Cancel* cancel = nullptr) const {
    return start<Stream>(DIPC_VERB_LIST, uri, prefix, options, cancel);
  }

  /// describe() without a wait.
  Result<Pending<Description>> start_describe(std::string_view uri, std::string_view ticket,
                                              const GetOptions& options = {},
                                              const Cancel* cancel = nullptr) const {
    return start<Description>(DIPC_VERB_DESCRIBE, uri, ticket, options, cancel);
  }

  /// put_open() without a wait.
  Result<Pending<Put>> start_put(std::string_view uri, std::string_view descriptor,
                                 const Schema& schema, const PutOptions& options = {},
                                 const Cancel* cancel = nullptr,
                                 ArrowDeviceType device_type = ARROW_DEVICE_CPU) const {
    return put_by<Pending<Put>, dipc_pending>(
        uri, options, [&](const char* const* uris, const dipc_put_options* built,
                          dipc_pending** out, dipc_error** error) {
          return dipc_client_start_put(raw_.get(), uris, 1, detail::byte_pointer(descriptor),
                                       descriptor.size(), built, detail::raw_or_null(cancel),
                                       schema.get(), device_type, out, error);
        });
  }

  /// exchange() without a wait.
  Result<Pending<Exchange>> start_exchange(std::string_view uri, std::string_view descriptor,
                                           const Schema& schema, const PutOptions& options = {},
                                           const GetOptions& answer_options = {},
                                           const Cancel* cancel = nullptr,
                                           ArrowDeviceType device_type = ARROW_DEVICE_CPU) const {
    auto answered = detail::build(answer_options);
    if (!answered) return std::move(answered).error();
    return put_by<Pending<Exchange>, dipc_pending>(
        uri, options, [&](const char* const* uris, const dipc_put_options* built,
                          dipc_pending** out, dipc_error** error) {
          return dipc_client_start_exchange(raw_.get(), uris, 1, detail::byte_pointer(descriptor),
                                            descriptor.size(), built, answered->get(),
                                            detail::raw_or_null(cancel), schema.get(), device_type,
                                            out, error);
        });
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

  /// Calls `function(uris, options, error)` with URIs and options as dipc.h takes them.
  template <class F>
  static Result<void> ask(Span<const std::string_view> uris, const GetOptions& options,
                          F&& function) {
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
    return detail::call([&](dipc_error** error) {
      return std::forward<F>(function)(pointers.data(), built->get(), error);
    });
  }

  /// Starts a request whose answer becomes a T.
  template <class T>
  Result<Pending<T>> start(std::int32_t verb, std::string_view uri, std::string_view ticket,
                           const GetOptions& options, const Cancel* cancel) const {
    dipc_pending* raw = nullptr;
    const Span<const std::string_view> uris(&uri, 1);
    auto done = ask(uris, options, [&](const char* const* texts, const dipc_get_options* built,
                                       dipc_error** error) {
      return dipc_client_start(raw_.get(), verb, texts, uris.size(), detail::byte_pointer(ticket),
                               ticket.size(), built, detail::raw_or_null(cancel), &raw, error);
    });
    if (!done) return std::move(done).error();
    return Pending<T>(raw);
  }

  /// Calls `function(uris, options, out, error)` as dipc.h takes them.
  template <class T = Put, class Raw = dipc_put, class F>
  static Result<T> put_by(std::string_view uri, const PutOptions& options, F&& function) {
    auto text = detail::c_string(uri, Status::invalid_uri, "the URI");
    if (!text) return std::move(text).error();
    auto built = detail::build(options);
    if (!built) return std::move(built).error();
    const char* pointer = text->c_str();
    auto raw = detail::call_for<Raw*>([&](Raw** out, dipc_error** error) {
      return function(&pointer, built->get(), out, error);
    });
    if (!raw) return std::move(raw).error();
    return T(*raw);
  }

  /// Opens a stream by dipc_client_get() or dipc_client_list().
  Result<Stream> open(decltype(&dipc_client_get) function, Span<const std::string_view> uris,
                      std::string_view ticket, const GetOptions& options,
                      const Cancel* cancel) const {
    Stream stream;
    auto done = ask(uris, options, [&](const char* const* texts, const dipc_get_options* built,
                                       dipc_error** error) {
      return function(raw_.get(), texts, uris.size(), detail::byte_pointer(ticket), ticket.size(),
                      built, detail::raw_or_null(cancel), stream.get(), error);
    });
    if (!done) return std::move(done).error();
    return stream;
  }

  detail::Handle<dipc_client, dipc_client_free> raw_;
};

}  // namespace dipc

#endif  // DIPC_CLIENT_HPP
