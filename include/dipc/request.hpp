// Requests: what a client asks for, as a provider and the pull form see it.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_REQUEST_HPP
#define DIPC_REQUEST_HPP

#include <dipc/generate.hpp>
#include <dipc/headers.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dipc {

/// What a client wants with a ticket.
enum class Verb : std::int32_t {
  get = DIPC_VERB_GET,            ///< Its table.
  put = DIPC_VERB_PUT,            ///< To send a table under it: RequestRef::source() takes it.
  /// To send a table and to get one at once: RequestRef::source() takes, the answer is a stream.
  exchange = DIPC_VERB_EXCHANGE,
  describe = DIPC_VERB_DESCRIBE,  ///< What it stands for: the answer is a Description.
  /// The tickets that begin with it: the answer is a Description with an endpoint for each.
  list = DIPC_VERB_LIST,
};

/// A process of this machine, as the system named it when it connected.
struct Process {
  std::int64_t pid;  ///< 0 where it has none in this process's namespace.
  std::int64_t uid;
  std::int64_t gid;
};

/// Who a client's certificate is for, which an authority of the server's has signed.
struct Certificate {
  std::string subject;      ///< "CN=alice, O=Example".
  std::string names;        ///< "DNS:a.example, URI:spiffe://example/a"; kinds DNS, IP, URI, email.
  std::string fingerprint;  ///< SHA-256, 64 lower-case hexadecimal digits.
};

/// The client that asked.
struct Peer {
  std::string text;       ///< For logs: "pid 4711, uid 1000".
  std::string transport;  ///< By which it came: "shm", "tls", "tcp" or "ucx".
  std::optional<Process> process = {};      ///< nullopt over a network, which does not tell.
  /// "10.0.0.7:40112"; nullopt over shm. A port says nothing of the user behind it.
  std::optional<std::string> address = {};
  std::optional<Certificate> certificate = {};  ///< nullopt where the client showed none.
};

/// The request that a provider was given: valid until the provider's stream is released, so that
/// the stream may look at it. Copied like a pointer. Every call is allowed from any thread.
class RequestRef {
 public:
  explicit RequestRef(const dipc_request* raw) noexcept : raw_(raw) {}

  /// What the client asked for: any bytes.
  Result<std::string> ticket() const {
    return detail::call_for_text([this](char* buffer, std::size_t size, std::size_t* length,
                                        dipc_error** error) {
      return dipc_request_ticket(raw_, reinterpret_cast<std::uint8_t*>(buffer), size, length,
                                 error);
    });
  }

  /// What the client wants with the ticket. Only authorizers, and handlers of
  /// Server::set_handler() and Server::set_handler_pull(), get other verbs than Verb::get.
  [[nodiscard]] Verb verb() const noexcept { return static_cast<Verb>(dipc_request_verb(raw_)); }

  /// The headers that the client sent.
  Result<Headers> headers() const {
    return detail::call_for_headers([this](dipc_headers** out, dipc_error** error) {
      return dipc_request_headers(raw_, out, error);
    });
  }

  /// Adds headers to the answer. The client gets those with the stream that are added before the
  /// schema was sent; later ones go with a failure of the stream.
  ///
  /// @return Status::invalid_argument: a key that is not allowed, more than 32 KiB, or the stream
  ///         is over.
  Result<void> add_headers(const Headers& headers) const {
    auto built = detail::build(headers);
    if (!built) return std::move(built).error();
    return detail::call([&](dipc_error** error) {
      return dipc_request_add_headers(raw_, built->get(), error);
    });
  }

  /// Names the label under which the request is counted, before its stream begins: see
  /// dipc_request_set_label() in dipc.h.
  ///
  /// @return Status::invalid_argument: not 1 to 128 bytes, or the stream has begun.
  Result<void> set_label(std::string_view label) const {
    auto text = detail::c_string(label, Status::invalid_argument, "the label");
    if (!text) return std::move(text).error();
    return detail::call([&](dipc_error** error) {
      return dipc_request_set_label(raw_, text->c_str(), error);
    });
  }

  /// How long the client still waits for the end of the stream: `forever` where it has set no
  /// deadline, zero once the deadline has passed.
  [[nodiscard]] std::chrono::nanoseconds time_left() const noexcept {
    return detail::time_of(dipc_request_time_left_ns(raw_));
  }

  /// The columns that the client wants, in its order; nullopt: all. A provider gives the whole
  /// table, and the library selects of it without a copy, unless take_selection() was called.
  Result<std::optional<std::vector<std::string>>> columns() const {
    if (!dipc_request_selects_columns(raw_)) return std::optional<std::vector<std::string>>();
    std::vector<std::string> names;
    for (std::size_t i = 0; i < dipc_request_column_count(raw_); i++) {
      auto name = detail::call_for_text([&](char* buffer, std::size_t size, std::size_t* length,
                                            dipc_error** error) {
        return dipc_request_column(raw_, i, buffer, size, length, error);
      });
      if (!name) return std::move(name).error();
      names.push_back(*std::move(name));
    }
    return std::optional<std::vector<std::string>>(std::move(names));
  }

  /// The first row that the client wants, counting from 0.
  [[nodiscard]] std::uint64_t first_row() const noexcept { return dipc_request_first_row(raw_); }

  /// The most rows that the client wants; nullopt: all.
  [[nodiscard]] std::optional<std::uint64_t> rows() const noexcept {
    const std::uint64_t rows = dipc_request_rows(raw_);
    return rows == DIPC_ALL_ROWS ? std::nullopt : std::optional<std::uint64_t>(rows);
  }

  /// The filter that the client wants rows to pass, which comes before first_row() and rows(): the
  /// bytes of a substrait.ExtendedExpression, which are not checked yet; nullopt: all rows pass.
  Result<std::optional<std::string>> filter() const {
    auto message = detail::call_for_text([this](char* buffer, std::size_t size, std::size_t* length,
                                                dipc_error** error) {
      return dipc_request_filter(raw_, reinterpret_cast<std::uint8_t*>(buffer), size, length,
                                 error);
    });
    if (!message) return std::move(message).error();
    if (message->empty()) return std::optional<std::string>();
    return std::optional<std::string>(*std::move(message));
  }

  /// Takes it upon the host to select: its stream has the wanted columns, in their order, and the
  /// wanted rows alone. Before the stream begins.
  Result<void> take_selection() const {
    return detail::call(
        [&](dipc_error** error) { return dipc_request_take_selection(raw_, error); });
  }

  /// Who asked.
  Result<Peer> peer() const {
    auto text = text_of(dipc_request_peer);
    if (!text) return std::move(text).error();
    auto transport = text_of(dipc_request_peer_transport);
    if (!transport) return std::move(transport).error();
    Peer peer{*std::move(text), *std::move(transport)};
    const auto id = [this](std::int32_t which) { return dipc_request_peer_id(raw_, which); };
    if (id(DIPC_PEER_UID) >= 0) {
      peer.process = Process{id(DIPC_PEER_PID), id(DIPC_PEER_UID), id(DIPC_PEER_GID)};
    }
    auto address = text_of(dipc_request_peer_address);
    if (address.ok()) {
      peer.address = *std::move(address);
    } else if (address.status() != Status::not_found) {
      return std::move(address).error();
    }
    auto subject = certificate(DIPC_CERTIFICATE_SUBJECT);
    if (subject.ok()) {
      auto names = certificate(DIPC_CERTIFICATE_NAMES);
      if (!names) return std::move(names).error();
      auto fingerprint = certificate(DIPC_CERTIFICATE_FINGERPRINT);
      if (!fingerprint) return std::move(fingerprint).error();
      peer.certificate =
          Certificate{*std::move(subject), *std::move(names), *std::move(fingerprint)};
    } else if (subject.status() != Status::not_found) {
      return std::move(subject).error();
    }
    return peer;
  }

  /// The name that the server's authorizer has given the client; nullopt where it has given none.
  Result<std::optional<std::string>> principal() const {
    auto name = text_of(dipc_request_principal);
    if (name.ok()) return std::optional<std::string>(*std::move(name));
    if (name.status() == Status::not_found) return std::optional<std::string>();
    return std::move(name).error();
  }

  /// In an Authorizer: names the client, for principal().
  Result<void> set_principal(std::string_view name) const {
    auto text = detail::c_string(name, Status::invalid_argument, "the principal");
    if (!text) return std::move(text).error();
    return detail::call([&](dipc_error** error) {
      // An authorizer is given the request as one that it may change.
      return dipc_request_set_principal(const_cast<dipc_request*>(raw_), text->c_str(), error);
    });
  }

  /// Whether the client has gone or has cancelled, so that more batches are of no use.
  [[nodiscard]] bool is_cancelled() const noexcept { return dipc_request_is_cancelled(raw_); }

  /// A descriptor that is readable (POLLIN) once is_cancelled() is true: to wait for that beside
  /// something else. It is the request's: not to be closed or read from.
  Result<int> cancel_fd() const {
    return detail::call_for<std::int32_t>([this](std::int32_t* out, dipc_error** error) {
      return dipc_request_cancel_fd(raw_, out, error);
    });
  }

  /// Verb::put and Verb::exchange: the schema of the table that the client sends, for a host that
  /// accepts or refuses the table with it.
  Result<Schema> source_schema() const {
    Schema schema;
    auto done = detail::call([&](dipc_error** error) {
      return dipc_request_source_schema(raw_, schema.get(), error);
    });
    if (!done) return std::move(done).error();
    return schema;
  }

  /// Verb::put and Verb::exchange: accepts the table that the client sends. From now on the client
  /// sends batches, as fast as the host reads. For Verb::put a handler reads the stream to its end
  /// and returns `Stream()`, which says that it has taken the table; for Verb::exchange it returns
  /// the answer, whose batches may be made of those of this stream. An Error fails the table for
  /// the client. A table that its client leaves ends with an error, never with its end. The arrays
  /// outlive the request.
  Result<Stream> source() const {
    Stream stream;
    auto done = detail::call([&](dipc_error** error) {
      return dipc_request_source(raw_, stream.get(), error);
    });
    if (!done) return std::move(done).error();
    return stream;
  }

  /// Verb::put: tells the client that the first batches of its table are safe, whatever happens to
  /// the rest. Put::next_result() gives it.
  ///
  /// @param bytes  For the client's host, at most 32 KiB.
  Result<void> result(std::uint64_t batches, std::string_view bytes = {}) const {
    return detail::call([&](dipc_error** error) {
      return dipc_request_result(raw_, batches, detail::byte_pointer(bytes), bytes.size(), error);
    });
  }

  [[nodiscard]] const dipc_request* raw() const noexcept { return raw_; }

 private:
  Result<std::string> text_of(decltype(&dipc_request_peer) function) const {
    return detail::call_for_text([&](char* buffer, std::size_t size, std::size_t* length,
                                     dipc_error** error) {
      return function(raw_, buffer, size, length, error);
    });
  }

  Result<std::string> certificate(std::int32_t which) const {
    return detail::call_for_text([&](char* buffer, std::size_t size, std::size_t* length,
                                     dipc_error** error) {
      return dipc_request_peer_certificate(raw_, which, buffer, size, length, error);
    });
  }

  const dipc_request* raw_;
};

/// A request of the pull form: start(), then push() for each batch, then finish() or fail(). With
/// Verb::put: source(), then finish() or fail(). With Verb::exchange: both, in any order. One that is destroyed unfinished fails its stream.
/// Every call is allowed from any thread.
class Request {
 public:
  /// Takes a handle of dipc_server_next_request().
  explicit Request(dipc_request* raw) noexcept : raw_(raw) {}

  /// What the client asked for: any bytes.
  Result<std::string> ticket() const { return ref().ticket(); }

  /// What the client wants with the ticket.
  [[nodiscard]] Verb verb() const noexcept { return ref().verb(); }

  /// The headers that the client sent.
  Result<Headers> headers() const { return ref().headers(); }

  /// Adds headers to the answer; before start(), for the client to get them with the stream.
  Result<void> add_headers(const Headers& headers) const { return ref().add_headers(headers); }

  /// How long the client still waits for the end of the stream; `forever` without a deadline.
  [[nodiscard]] std::chrono::nanoseconds time_left() const noexcept { return ref().time_left(); }

  /// The columns that the client wants, in its order; nullopt: all.
  Result<std::optional<std::vector<std::string>>> columns() const { return ref().columns(); }

  /// The first row that the client wants, counting from 0.
  [[nodiscard]] std::uint64_t first_row() const noexcept { return ref().first_row(); }

  /// The most rows that the client wants; nullopt: all.
  [[nodiscard]] std::optional<std::uint64_t> rows() const noexcept { return ref().rows(); }

  /// The filter that the client wants rows to pass: see RequestRef::filter(). nullopt: all pass.
  Result<std::optional<std::string>> filter() const { return ref().filter(); }

  /// Takes it upon the host to select; before start().
  Result<void> take_selection() const { return ref().take_selection(); }

  /// Whether the client has all rows that it wants: later batches are useless, and finish() may
  /// follow.
  [[nodiscard]] bool is_complete() const noexcept { return dipc_request_is_complete(raw_.get()); }

  /// Who asked.
  Result<Peer> peer() const { return ref().peer(); }

  /// The name that the server's authorizer has given the client; nullopt where it has given none.
  Result<std::optional<std::string>> principal() const { return ref().principal(); }

  /// With ServerOptions::authorizer_pull: whether the host is to decide about the request, by
  /// allow() or fail(). One that is destroyed undecided is refused. A request that was allowed
  /// comes out of Server::next_request() once more, if the pull form serves it.
  [[nodiscard]] bool is_undecided() const noexcept { return dipc_request_is_undecided(raw_.get()); }

  /// Names the client of an undecided request, for principal(); before allow().
  Result<void> set_principal(std::string_view name) const { return ref().set_principal(name); }

  /// Allows what the client of an undecided request asks for.
  ///
  /// @return Status::invalid_argument: there is nothing to decide.
  Result<void> allow() const {
    return detail::call(
        [&](dipc_error** error) { return dipc_request_allow(raw_.get(), error); });
  }

  /// Whether the client has gone or has cancelled.
  [[nodiscard]] bool is_cancelled() const noexcept { return ref().is_cancelled(); }

  /// A descriptor that is readable (POLLIN) once is_cancelled() is true. It is the request's.
  Result<int> cancel_fd() const { return ref().cancel_fd(); }

  /// Gives the schema, before the first batch. `schema` is read, not moved.
  Result<void> start(const Schema& schema, ArrowDeviceType device_type = ARROW_DEVICE_CPU) const {
    return detail::call([&](dipc_error** error) {
      return dipc_request_start(raw_.get(), schema.get(), device_type, error);
    });
  }

  /// Sends a batch, waiting for room where the client is slow.
  ///
  /// @param batch     Moved on success only: after Status::timeout, call again with it.
  /// @param metadata  Custom metadata of the batch.
  /// @param timeout   How long to wait at most.
  /// @return Status::cancelled, Status::disconnected: the client is gone.
  Result<void> push(DeviceArray&& batch, const Metadata& metadata = {},
                    std::chrono::nanoseconds timeout = forever) const {
    const std::string encoded = encode_metadata(metadata);
    return detail::call([&](dipc_error** error) {
      return dipc_request_push(raw_.get(), batch.get(),
                               encoded.empty() ? nullptr : detail::byte_pointer(encoded),
                               encoded.size(), detail::nanoseconds(timeout), error);
    });
  }

  /// The schema of the table that the client sends.
  Result<Schema> source_schema() const { return ref().source_schema(); }

  /// Accepts the table that the client sends. Read to its end, it is taken by finish().
  Result<Stream> source() const { return ref().source(); }

  /// Tells the client that the first batches of its table are safe.
  Result<void> result(std::uint64_t batches, std::string_view bytes = {}) const {
    return ref().result(batches, bytes);
  }

  /// Ends the stream well, waiting for the last batches to leave. After Status::timeout, call
  /// again. For Verb::put it tells the client that the host has taken the table.
  Result<void> finish(std::chrono::nanoseconds timeout = forever) const {
    return detail::call([&](dipc_error** error) {
      return dipc_request_finish(raw_.get(), detail::nanoseconds(timeout), error);
    });
  }

  /// push() without a wait: false where there is no room yet, and then nothing was moved.
  Result<bool> try_push(DeviceArray&& batch, const Metadata& metadata = {}) const {
    return has_room(push(std::move(batch), metadata, std::chrono::nanoseconds::zero()));
  }

  /// finish() without a wait: false while batches have still to leave.
  Result<bool> try_finish() const { return has_room(finish(std::chrono::nanoseconds::zero())); }

  /// A descriptor for poll(), epoll and event loops: where try_push() or try_finish() gives false,
  /// it becomes readable when the call may go on. It is the request's: not to be closed or read
  /// from.
  Result<int> fd() const {
    return detail::call_for<int>([this](int* out, dipc_error** error) {
      return dipc_request_fd(raw_.get(), out, error);
    });
  }

  /// Ends the stream with an error, which the client is told.
  void fail(const Error& error) const { detail::fail_request(raw_.get(), error); }

 private:
  static Result<bool> has_room(const Result<void>& result) {
    if (result.ok()) return true;
    if (result.status() == Status::timeout) return false;
    return result.error();
  }

  [[nodiscard]] RequestRef ref() const noexcept { return RequestRef(raw_.get()); }

  detail::Handle<dipc_request, dipc_request_free> raw_;
};

}  // namespace dipc

#endif  // DIPC_REQUEST_HPP
