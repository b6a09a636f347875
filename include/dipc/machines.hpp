// Sender and Receiver: the bare protocol, for hosts that move messages themselves. No transport, no
// clock, no threads; dipc_machines.h says in which order to call.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_MACHINES_HPP
#define DIPC_MACHINES_HPP

#include <dipc/detail.hpp>
#include <dipc/options.hpp>
#include <dipc/schema.hpp>
#include <dipc/server.hpp>
#include <dipc/span.hpp>
#include <dipc_machines.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dipc {

enum class MessageClass : std::int32_t {
  metadata = DIPC_MESSAGE_METADATA,      ///< Untagged, of the metadata stream.
  tagged = DIPC_MESSAGE_TAGGED,          ///< A body, an address list, a request, frees.
  control = DIPC_MESSAGE_CONTROL,        ///< Of libdipc's extension.
  disconnect = DIPC_MESSAGE_DISCONNECT,  ///< None: cut the connection. The part is the reason.
};

/// A message to send: its parts, one after the other. Valid until the machine is polled again or
/// freed.
struct Message {
  MessageClass kind = MessageClass::metadata;
  Role role = Role::metadata;  ///< The connection.
  std::uint64_t tag = 0;       ///< Of a tagged message.

  [[nodiscard]] std::size_t parts() const noexcept { return count_; }
  [[nodiscard]] Bytes part(std::size_t index) const noexcept {
    return {static_cast<const std::uint8_t*>(data_[index]), lengths_[index]};
  }

  /// The parts, joined.
  [[nodiscard]] std::string joined() const {
    std::string bytes;
    for (std::size_t i = 0; i < count_; i++) {
      if (lengths_[i] > 0) bytes.append(static_cast<const char*>(data_[i]), lengths_[i]);
    }
    return bytes;
  }

 private:
  friend class Receiver;
  friend class Sender;
  const void* const* data_ = nullptr;
  const std::size_t* lengths_ = nullptr;
  std::size_t count_ = 0;
};

/// A body that a receiver waits for.
struct ExpectedBody {
  std::uint32_t sequence = 0;     ///< The low 32 bits of its tag.
  std::uint64_t packed_bytes = 0; ///< Its length, packed.
  std::uint64_t list_bytes = 0;   ///< Its length as an address list.
};

/// The consuming side of one stream. One thread at a time; batches may be released by any.
class Receiver {
 public:
  enum class State : std::int32_t {
    requested = DIPC_RECEIVER_REQUESTED,
    awaiting_schema = DIPC_RECEIVER_AWAITING_SCHEMA,
    streaming = DIPC_RECEIVER_STREAMING,
    ended = DIPC_RECEIVER_ENDED,
    failed = DIPC_RECEIVER_FAILED,
    cancelled = DIPC_RECEIVER_CANCELLED,
  };
  /// Monotonic, with any origin; never less than in an earlier call.
  using Time = std::chrono::nanoseconds;

  /// @param uris       One, or one for metadata and one for bodies: for their tags.
  /// @param stream_id  Tells this stream from others of the server's; needed with two URIs.
  /// @param verb       Verb::get, describe or list; answers to the last two are tables too.
  static Result<Receiver> make(Span<const std::string_view> uris, std::string_view ticket,
                               const GetOptions& options = {},
                               const std::array<std::uint8_t, 16>* stream_id = nullptr,
                               Verb verb = Verb::get) {
    std::vector<std::string> texts;
    std::vector<const char*> pointers;
    for (const std::string_view uri : uris) {
      auto text = detail::c_string(uri, Status::invalid_uri, "the URI");
      if (!text) return std::move(text).error();
      texts.push_back(*std::move(text));
    }
    pointers.reserve(texts.size());
    for (const std::string& text : texts) pointers.push_back(text.c_str());
    auto built = detail::build(options);
    if (!built) return std::move(built).error();
    auto raw = detail::call_for<dipc_receiver*>([&](dipc_receiver** out, dipc_error** error) {
      return dipc_receiver_new(pointers.data(), pointers.size(), static_cast<std::int32_t>(verb),
                               detail::byte_pointer(ticket), ticket.size(),
                               stream_id == nullptr ? nullptr : stream_id->data(), built->get(),
                               out, error);
    });
    if (!raw) return std::move(raw).error();
    return Receiver(*raw);
  }

  /// Asks.
  Result<void> start(Time now) {
    return call([&](dipc_error** error) { return dipc_receiver_start(raw(), ns(now), error); });
  }

  // What arrives. A failure is what ended the stream.
  Result<void> handle_metadata(Time now, Bytes data) {
    return call([&](dipc_error** error) {
      return dipc_receiver_handle_metadata(raw(), ns(now), data.data(), data.size(), error);
    });
  }
  Result<void> handle_tagged(Time now, std::uint64_t tag, Bytes data) {
    return call([&](dipc_error** error) {
      return dipc_receiver_handle_tagged(raw(), ns(now), tag, data.data(), data.size(), error);
    });
  }
  Result<void> handle_control(Time now, Role role, Bytes data) {
    return call([&](dipc_error** error) {
      return dipc_receiver_handle_control(raw(), ns(now), static_cast<std::int32_t>(role),
                                          data.data(), data.size(), error);
    });
  }
  Result<void> handle_disconnect(Role role, std::string_view why) {
    auto text = detail::c_string(why, Status::invalid_argument, "the text");
    if (!text) return std::move(text).error();
    return call([&](dipc_error** error) {
      return dipc_receiver_handle_disconnect(raw(), static_cast<std::int32_t>(role), text->c_str(),
                                             error);
    });
  }
  Result<void> handle_timeout(Time now) {
    return call(
        [&](dipc_error** error) { return dipc_receiver_handle_timeout(raw(), ns(now), error); });
  }

  /// Says where memory of the server's can be read in this process.
  ///
  /// @param address  Of its first byte, as the server calls it.
  /// @param memory   The same memory here.
  /// @param keep     Freed when neither the receiver nor a batch needs the memory, on any thread.
  Result<void> add_memory(std::uint64_t address, Bytes memory, std::shared_ptr<void> keep = nullptr) {
    auto owned = std::make_unique<std::shared_ptr<void>>(std::move(keep));
    auto done = call([&](dipc_error** error) {
      return dipc_receiver_add_memory(
          raw(), address, memory.data(), memory.size(), owned.get(),
          [](void* userdata) { delete static_cast<std::shared_ptr<void>*>(userdata); }, error);
    });
    if (done.ok()) static_cast<void>(owned.release());  // the finalizer's now
    return done;
  }

  /// The schema; nothing where it has not come.
  Result<Schema> schema() {
    Schema schema;
    auto done = call(
        [&](dipc_error** error) { return dipc_receiver_schema(raw(), schema.get(), error); });
    if (!done) return std::move(done).error();
    return schema;
  }

  /// The headers of the server's answer: those that came with the schema, then those of a failure.
  Result<Headers> headers() const {
    return detail::call_for_headers([this](dipc_headers** out, dipc_error** error) {
      return dipc_receiver_headers(raw_.get(), out, error);
    });
  }

  /// The next batch, of which there is none at the end of the stream; nullopt where more has to
  /// arrive. Taking one gives the server room for another.
  Result<std::optional<DeviceArray>> next() {
    DeviceArray batch;
    dipc_error* error = nullptr;
    const dipc_status status = dipc_receiver_next(raw(), batch.get(), &error);
    if (status < 0) return Error::adopt(status, error);
    if (status == DIPC_NOTHING) return std::optional<DeviceArray>();
    return std::optional<DeviceArray>(std::move(batch));
  }

  /// Ends the stream early; the server is told.
  Result<void> cancel() {
    return call([&](dipc_error** error) { return dipc_receiver_cancel(raw(), error); });
  }

  /// The next message to send; nullopt where none waits.
  Result<std::optional<Message>> poll_transmit(Time now) {
    Message message;
    std::int32_t kind = 0;
    std::int32_t role = 0;
    dipc_error* error = nullptr;
    const dipc_status status =
        dipc_receiver_poll_transmit(raw(), ns(now), &kind, &role, &message.tag, &message.data_,
                                    &message.lengths_, &message.count_, &error);
    if (status < 0) return Error::adopt(status, error);
    if (status == DIPC_NOTHING) return std::optional<Message>();
    message.kind = static_cast<MessageClass>(kind);
    message.role = static_cast<Role>(role);
    return std::optional<Message>(message);
  }

  /// The next body whose header has come and which has not; nullopt where there is none.
  Result<std::optional<ExpectedBody>> poll_expected() {
    ExpectedBody body;
    dipc_error* error = nullptr;
    const dipc_status status = dipc_receiver_poll_expected(
        raw(), &body.sequence, &body.packed_bytes, &body.list_bytes, &error);
    if (status < 0) return Error::adopt(status, error);
    if (status == DIPC_NOTHING) return std::optional<ExpectedBody>();
    return std::optional<ExpectedBody>(body);
  }

  /// When to call handle_timeout() and to poll again, at the latest; nullopt: there is no such time.
  Result<std::optional<Time>> poll_timeout() {
    std::uint64_t at = 0;
    dipc_error* error = nullptr;
    const dipc_status status = dipc_receiver_poll_timeout(raw(), &at, &error);
    if (status < 0) return Error::adopt(status, error);
    if (status == DIPC_NOTHING) return std::optional<Time>();
    return std::optional<Time>(Time(static_cast<Time::rep>(at)));
  }

  [[nodiscard]] State state() const noexcept {
    return static_cast<State>(dipc_receiver_state(raw_.get()));
  }

  /// How many addresses batches hold, or wait to be sent back.
  [[nodiscard]] std::size_t lent_count() const noexcept {
    return dipc_receiver_lent_count(raw_.get());
  }

 private:
  explicit Receiver(dipc_receiver* raw) noexcept : raw_(raw) {}

  template <class F>
  static Result<void> call(F&& function) {
    return detail::call(std::forward<F>(function));
  }
  static std::uint64_t ns(Time time) noexcept { return detail::nanoseconds(time); }
  [[nodiscard]] dipc_receiver* raw() noexcept { return raw_.get(); }

  detail::Handle<dipc_receiver, dipc_receiver_free> raw_;
};

/// The producing side of one connection. One thread at a time.
class Sender {
 public:
  enum class State : std::int32_t {
    idle = DIPC_SENDER_IDLE,
    requested = DIPC_SENDER_REQUESTED,
    streaming = DIPC_SENDER_STREAMING,
    ended = DIPC_SENDER_ENDED,
    closed = DIPC_SENDER_CLOSED,
  };
  /// Bodies are sent packed, or as lists of the addresses that they have in this process.
  enum class Bodies : std::int32_t { packed = DIPC_BODY_PACKED, list = DIPC_BODY_LIST };

  /// @param uri  The URI that clients of the connection were given, for its tags and role.
  static Result<Sender> make(std::string_view uri, Bodies bodies = Bodies::packed) {
    auto text = detail::c_string(uri, Status::invalid_uri, "the URI");
    if (!text) return std::move(text).error();
    auto raw = detail::call_for<dipc_sender*>([&](dipc_sender** out, dipc_error** error) {
      return dipc_sender_new(text->c_str(), static_cast<std::int32_t>(bodies), out, error);
    });
    if (!raw) return std::move(raw).error();
    return Sender(*raw);
  }

  // What arrives. Status::protocol: the client is at fault; send what is to be sent, then cut.
  Result<void> handle_tagged(std::uint64_t tag, Bytes data) {
    return call([&](dipc_error** error) {
      return dipc_sender_handle_tagged(raw(), tag, data.data(), data.size(), error);
    });
  }
  Result<void> handle_control(Bytes data) {
    return call([&](dipc_error** error) {
      return dipc_sender_handle_control(raw(), data.data(), data.size(), error);
    });
  }
  Result<void> handle_disconnect() {
    return call([&](dipc_error** error) { return dipc_sender_handle_disconnect(raw(), error); });
  }

  /// Accepts the request and gives the schema, which is read, not moved.
  Result<void> start(const Schema& schema, ArrowDeviceType device_type = ARROW_DEVICE_CPU) {
    return call([&](dipc_error** error) {
      return dipc_sender_start(raw(), schema.get(), device_type, error);
    });
  }

  /// Refuses the request.
  Result<void> refuse(const Error& why) {
    return call([&](dipc_error** error) {
      return dipc_sender_refuse(raw(), static_cast<std::int32_t>(why.status()), why.text().data(),
                                error);
    });
  }

  /// Sends a batch, which is moved on success only. Status::busy: the window is full.
  Result<void> send_batch(DeviceArray&& batch, const Metadata& metadata = {}) {
    const std::string encoded = encode_metadata(metadata);
    return call([&](dipc_error** error) {
      return dipc_sender_send_batch(raw(), batch.get(),
                                    encoded.empty() ? nullptr : detail::byte_pointer(encoded),
                                    encoded.size(), error);
    });
  }

  /// Ends the stream well, once everything before has gone.
  Result<void> end() {
    return call([&](dipc_error** error) { return dipc_sender_end(raw(), error); });
  }

  /// Ends the stream with an error that the client is told.
  Result<void> fail(const Error& why) {
    return call([&](dipc_error** error) {
      return dipc_sender_fail(raw(), static_cast<std::int32_t>(why.status()), why.text().data(),
                              error);
    });
  }

  /// The next message to send; nullopt where none waits.
  Result<std::optional<Message>> poll_transmit() {
    Message message;
    std::int32_t kind = 0;
    dipc_error* error = nullptr;
    const dipc_status status =
        dipc_sender_poll_transmit(raw(), &kind, &message.tag, &message.data_, &message.lengths_,
                                  &message.count_, &error);
    if (status < 0) return Error::adopt(status, error);
    if (status == DIPC_NOTHING) return std::optional<Message>();
    message.kind = static_cast<MessageClass>(kind);
    return std::optional<Message>(message);
  }

  /// What the client asks for. Status::not_found: nothing yet.
  Result<std::string> ticket() const {
    return detail::call_for_text([this](char* buffer, std::size_t size, std::size_t* length,
                                        dipc_error** error) {
      return dipc_sender_ticket(raw_.get(), reinterpret_cast<std::uint8_t*>(buffer), size, length,
                                error);
    });
  }

  /// What the client wants with it: Verb::get, describe or list. The answers to the last two are
  /// streams of a Description. nullopt: no request has come.
  [[nodiscard]] std::optional<Verb> verb() const noexcept {
    const std::int32_t verb = dipc_sender_verb(raw_.get());
    return verb == 0 ? std::nullopt : std::optional<Verb>(static_cast<Verb>(verb));
  }

  /// How long the client waits for the end of the stream, from the request on; `forever` where it
  /// has set no deadline. To end a stream that takes longer is up to the caller.
  [[nodiscard]] std::chrono::nanoseconds deadline() const noexcept {
    return detail::time_of(dipc_sender_deadline_ns(raw_.get()));
  }

  /// The headers that the client sent. Status::not_found: no request has come.
  Result<Headers> headers() const {
    return detail::call_for_headers([this](dipc_headers** out, dipc_error** error) {
      return dipc_sender_headers(raw_.get(), out, error);
    });
  }

  /// Adds headers to the answer; those added after start() go with a failure of the stream.
  Result<void> add_headers(const Headers& headers) {
    auto built = detail::build(headers);
    if (!built) return std::move(built).error();
    return call([&](dipc_error** error) {
      return dipc_sender_add_headers(raw(), built->get(), error);
    });
  }

  [[nodiscard]] State state() const noexcept {
    return static_cast<State>(dipc_sender_state(raw_.get()));
  }
  /// Whether the client's window has room for a batch.
  [[nodiscard]] bool may_send() const noexcept { return dipc_sender_may_send(raw_.get()); }
  /// Whether the client has cancelled the stream.
  [[nodiscard]] bool is_cancelled() const noexcept { return dipc_sender_is_cancelled(raw_.get()); }
  /// How many addresses were lent and not yet given back.
  [[nodiscard]] std::size_t lent_count() const noexcept {
    return dipc_sender_lent_count(raw_.get());
  }

 private:
  explicit Sender(dipc_sender* raw) noexcept : raw_(raw) {}

  template <class F>
  static Result<void> call(F&& function) {
    return detail::call(std::forward<F>(function));
  }
  [[nodiscard]] dipc_sender* raw() noexcept { return raw_.get(); }

  detail::Handle<dipc_sender, dipc_sender_free> raw_;
};

}  // namespace dipc

#endif  // DIPC_MACHINES_HPP
