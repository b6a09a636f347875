// A sender and a receiver joined by hand: no transport, no clock, no threads.
#include <array>
#include <chrono>

#include "support.hpp"

namespace {

using support::Tables;
using Time = dipc::Receiver::Time;

/// The two ends of a connection.
struct Joined {
  explicit Joined(const char* address, dipc::Sender::Bodies bodies = dipc::Sender::Bodies::packed,
                  dipc::Verb verb = dipc::Verb::get, const dipc::GetOptions& options = {})
      : uri(address),
        sender(dipc::Sender::make(uri, bodies).value()),
        receiver(
            dipc::Receiver::make(std::array{uri}, "a ticket", options, nullptr, verb).value()) {
    receiver.start(now).value();
    exchange();
  }

  /// Carries messages until neither end has one.
  void exchange() {
    for (bool moved = true; moved;) {
      moved = false;
      while (auto message = receiver.poll_transmit(now).value()) {
        moved = true;
        const std::string bytes = message->joined();
        if (message->kind == dipc::MessageClass::tagged) {
          sender.handle_tagged(message->tag, dipc::bytes_of(bytes)).value();
        } else {
          sender.handle_control(dipc::bytes_of(bytes)).value();
        }
      }
      while (auto message = sender.poll_transmit().value()) {
        moved = true;
        deliver(*message);
      }
    }
  }

  void deliver(const dipc::Message& message) {
    const std::string bytes = message.joined();
    const dipc::Bytes data = dipc::bytes_of(bytes);
    // next() returns this failure again.
    switch (message.kind) {
      case dipc::MessageClass::metadata:
        static_cast<void>(receiver.handle_metadata(now, data));
        break;
      case dipc::MessageClass::tagged:
        static_cast<void>(receiver.handle_tagged(now, message.tag, data));
        break;
      case dipc::MessageClass::control:
        static_cast<void>(receiver.handle_control(now, dipc::Role::metadata, data));
        break;
      case dipc::MessageClass::disconnect:
        static_cast<void>(receiver.handle_disconnect(dipc::Role::metadata, bytes));
        break;
    }
  }

  std::string_view uri;
  Time now{1};
  dipc::Sender sender;
  dipc::Receiver receiver;
};

TEST_F(Tables, BatchesCross) {
  Joined ends("mem:a?dipc=1");
  EXPECT_EQ(ends.sender.state(), dipc::Sender::State::requested);
  EXPECT_EQ(ends.sender.ticket().value(), "a ticket");
  EXPECT_FALSE(ends.receiver.schema().value());
  ends.sender.start(support::plain_schema()).value();
  ends.exchange();
  table_check_schema(ends.receiver.schema().value().get());
  EXPECT_EQ(ends.receiver.state(), dipc::Receiver::State::streaming);
  for (std::int64_t i = 0; i < 3; i++) {
    EXPECT_TRUE(ends.sender.may_send());
    ends.sender.send_batch(support::plain_batch(i * 10, 10)).value();
    ends.exchange();
    const auto batch = ends.receiver.next().value();
    ASSERT_TRUE(batch.has_value());
    table_check(&(*batch)->array, i * 10, 10);
    EXPECT_FALSE(ends.receiver.next().value().has_value());
  }
  // Each body was announced by its header, after the schema's number.
  for (std::uint32_t sequence = 1; sequence <= 3; sequence++) {
    const auto expected = ends.receiver.poll_expected().value();
    ASSERT_TRUE(expected.has_value());
    EXPECT_EQ(expected->sequence, sequence);
    EXPECT_GE(expected->packed_bytes, 10 * sizeof(std::int64_t));
  }
  EXPECT_FALSE(ends.receiver.poll_expected().value().has_value());
  ends.sender.end().value();
  ends.exchange();
  const auto last = ends.receiver.next().value();
  ASSERT_TRUE(last.has_value());
  EXPECT_FALSE(*last);
}

// Promise: the host of a sender sees what the client wants, and both see each other's headers.
TEST_F(Tables, TicketsAreListed) {
  EXPECT_FALSE(dipc::Sender::make("mem:a?dipc=1").value().verb().has_value());
  dipc::GetOptions options;
  options.deadline = std::chrono::seconds(5);
  options.headers.add("user", "ada");
  Joined ends("mem:a?dipc=1", dipc::Sender::Bodies::packed, dipc::Verb::list, options);
  EXPECT_EQ(ends.sender.verb(), dipc::Verb::list);
  EXPECT_EQ(ends.sender.deadline(), std::chrono::seconds(5));
  EXPECT_EQ(ends.sender.headers().value().get("user"), "ada");
  ends.sender.add_headers(options.headers).value();
  dipc::Description listed;
  listed.endpoints.push_back({"a ticket", {}, 30, std::nullopt});
  auto answer = dipc::to_stream(listed).value();
  ends.sender.start(answer.schema().value()).value();
  ends.sender.send_batch(answer.next().value()).value();
  ends.sender.end().value();
  ends.exchange();
  EXPECT_EQ(ends.receiver.headers().value().get("user"), "ada");
  const auto batch = ends.receiver.next().value();
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ((*batch)->array.length, 1);
}

// Promise: memory that is lent is kept until nobody needs it.
TEST_F(Tables, ListsNeedMemoryThatWasNamed) {
  Joined ends("mem:a?want_data=1099511627777&free_data=1099511627778",
              dipc::Sender::Bodies::list);
  const auto kept = std::make_shared<int>(0);
  // The sender is this process: all of its memory can be read.
  const dipc::Bytes everything(reinterpret_cast<const std::uint8_t*>(1), INTPTR_MAX / 2);
  ends.receiver.add_memory(1, everything, kept).value();
  EXPECT_EQ(ends.receiver.add_memory(2, everything, kept).status(),
            dipc::Status::invalid_argument);
  EXPECT_EQ(kept.use_count(), 2);
  ends.sender.start(support::plain_schema()).value();
  ends.sender.send_batch(support::plain_batch(0, 10)).value();
  ends.exchange();
  {
    const auto batch = ends.receiver.next().value();
    table_check(&(*batch)->array, 0, 10);
    EXPECT_GT(ends.receiver.lent_count(), 0U);
  }
  ends.now = ends.receiver.poll_timeout().value().value();
  ends.exchange();
  ends.now = ends.receiver.poll_timeout().value().value_or(ends.now);
  ends.receiver.handle_timeout(ends.now).value();
  ends.exchange();
  EXPECT_EQ(ends.sender.lent_count(), 0U);
  { const auto gone = std::move(ends.receiver); }
  EXPECT_EQ(kept.use_count(), 1);
}

TEST_F(Tables, EndsAreTold) {
  Joined refused("mem:a?dipc=1");
  refused.sender.refuse({dipc::Status::not_found, "never heard of it"}).value();
  refused.exchange();
  const auto schema = refused.receiver.schema();
  EXPECT_EQ(schema.status(), dipc::Status::not_found);
  EXPECT_NE(schema.error().text().find("never heard of it"), std::string_view::npos);

  Joined failed("mem:a?dipc=1");
  failed.sender.start(support::plain_schema()).value();
  failed.sender.fail({dipc::Status::io, "the disk is full"}).value();
  failed.exchange();
  EXPECT_EQ(failed.receiver.next().status(), dipc::Status::io);

  Joined cancelled("mem:a?dipc=1");
  cancelled.sender.start(support::plain_schema()).value();
  cancelled.exchange();
  cancelled.receiver.cancel().value();
  cancelled.exchange();
  EXPECT_TRUE(cancelled.sender.is_cancelled());
  auto batch = support::plain_batch(0, 10);
  EXPECT_EQ(cancelled.sender.send_batch(std::move(batch)).status(), dipc::Status::cancelled);
  table_check(&batch->array, 0, 10);  // NOLINT(bugprone-use-after-move): a failure moves nothing

  Joined garbage("mem:a?dipc=1");
  EXPECT_EQ(garbage.sender.handle_tagged(12345, dipc::bytes_of("nonsense")).status(),
            dipc::Status::protocol);
  garbage.sender.handle_disconnect().value();
  EXPECT_EQ(garbage.sender.state(), dipc::Sender::State::closed);
}

}  // namespace
