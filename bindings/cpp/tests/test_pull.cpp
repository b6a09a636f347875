// The pull form: the host asks for requests, and no thread of the library calls it.
#include <chrono>
#include <thread>

#include "support.hpp"

namespace {

using support::Pair;
using support::Tables;
using namespace std::chrono_literals;

class Pull : public Tables {
 protected:
  Pull() { pair_.server.serve_pull("table").value(); }

  /// Runs `consume` with a stream of the ticket and, at the same time, `produce` with the request
  /// for it.
  template <class C, class P>
  void run(C consume, P produce) {
    std::thread client([&] { consume(pair_.get("table")); });
    auto request = pair_.server.next_request(10s).value();
    ASSERT_TRUE(request.has_value());
    EXPECT_EQ(request->ticket().value(), "table");
    produce(*std::move(request));
    client.join();
    EXPECT_TRUE(pair_.server.drain_releases().ok());
  }

  Pair pair_;
};

TEST_F(Pull, BatchesArePushedWithTheirMetadata) {
  const dipc::Metadata metadata = {{"batch", "first"}};
  run(
      [&](dipc::Result<dipc::Stream> stream) {
        table_check(&(*stream->next())->array, 0, 100);
        EXPECT_EQ(stream->metadata().value(), metadata);
        table_check(&(*stream->next())->array, 100, 100);
        EXPECT_EQ(stream->metadata().value(), dipc::Metadata{});
        EXPECT_FALSE(*stream->next());
      },
      [&](const dipc::Request& request) {
        const auto schema = support::plain_schema();
        ASSERT_TRUE(request.start(schema).ok());
        EXPECT_TRUE(schema);
        EXPECT_EQ(request.start(schema).status(), dipc::Status::invalid_argument);
        EXPECT_TRUE(request.push(support::plain_batch(0, 100), metadata).ok());
        EXPECT_TRUE(request.push(support::plain_batch(100, 100)).ok());
        EXPECT_TRUE(request.finish().ok());
      });
}

TEST_F(Pull, FailuresAreTold) {
  run(
      [](dipc::Result<dipc::Stream> stream) {
        ASSERT_TRUE(stream.ok());
        const auto next = stream->next();
        EXPECT_EQ(next.status(), dipc::Status::permission);
        EXPECT_NE(next.error().text().find("changed my mind"), std::string_view::npos);
      },
      [](const dipc::Request& request) {
        ASSERT_TRUE(request.start(support::plain_schema()).ok());
        request.fail({dipc::Status::permission, "changed my mind"});
      });
}

// Promise: a request that is dropped fails its stream.
TEST_F(Pull, DroppedRequestsFail) {
  run([](dipc::Result<dipc::Stream> stream) { EXPECT_FALSE(stream.ok()); },
      [](dipc::Request request) { const auto dropped = std::move(request); });
}

// Promise: a batch for which there was no room still belongs to the caller.
TEST_F(Pull, ABatchThatFoundNoRoomIsTheCallersStill) {
  std::optional<dipc::Stream> slow;
  run([&](dipc::Result<dipc::Stream> stream) { slow = std::move(stream).value(); },
      [](const dipc::Request& request) {
        ASSERT_TRUE(request.start(support::plain_schema()).ok());
        dipc::Result<void> pushed;
        for (int i = 0; pushed.ok() && i < 1000; i++) {
          auto batch = support::plain_batch(0, 10);
          pushed = request.push(std::move(batch), {}, 0s);
          // NOLINTNEXTLINE(bugprone-use-after-move): a failure moves nothing
          EXPECT_EQ(static_cast<bool>(batch), !pushed.ok());
        }
        EXPECT_EQ(pushed.status(), dipc::Status::timeout);
        request.fail({dipc::Status::busy, "enough"});
      });
}

// Promise: the pull form, too, gets requests for every ticket that is not served by itself, with
// the verb.
TEST_F(Pull, AHandlerGetsEveryTicketAndVerb) {
  pair_.server.set_handler_pull().value();
  std::thread client([this] {
    dipc::GetOptions options;
    options.headers.add("key", "value");
    options.deadline = 1h;
    auto stream = pair_.client.get(pair_.uri, "any", options).value();
    EXPECT_EQ(stream.headers().value(), options.headers);
    EXPECT_EQ(support::count_rows(stream).value(), 10);
    EXPECT_EQ(pair_.client.describe(pair_.uri, "any", options).value().rows, 10U);
    EXPECT_EQ(pair_.client.list(pair_.uri, "any", options).value().size(), 1U);
  });
  for (const auto verb : {dipc::Verb::get, dipc::Verb::describe, dipc::Verb::list}) {
    auto request = pair_.server.next_request(60s).value();
    ASSERT_TRUE(request.has_value());
    EXPECT_EQ(request->ticket().value(), "any");
    EXPECT_EQ(request->verb(), verb);
    EXPECT_GT(request->time_left(), 0s);
    EXPECT_LE(request->time_left(), 1h);
    EXPECT_TRUE(request->add_headers(request->headers().value()).ok());
    dipc::Description description;
    description.rows = 10;
    description.endpoints.push_back({"any"});
    auto answer = verb == dipc::Verb::get ? support::plain_stream(1, 10)
                                          : dipc::to_stream(description).value();
    EXPECT_TRUE(request->start(answer.schema().value()).ok());
    for (dipc::DeviceArray& batch : answer) EXPECT_TRUE(request->push(std::move(batch)).ok());
    EXPECT_TRUE(request->finish().ok());
  }
  client.join();
}

TEST_F(Pull, NobodyAsks) {
  EXPECT_FALSE(pair_.server.next_request(0s).value().has_value());
  EXPECT_FALSE(pair_.server.next_request(-1s).value().has_value());
  const auto cancel = dipc::Cancel::make().value();
  ASSERT_TRUE(cancel.trigger().ok());
  EXPECT_EQ(pair_.server.next_request(dipc::forever, &cancel).status(), dipc::Status::cancelled);
  ASSERT_TRUE(pair_.server.stop().ok());
  EXPECT_EQ(pair_.server.next_request().status(), dipc::Status::stopped);
}

}  // namespace
