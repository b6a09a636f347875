// Headers, deadlines, handlers, replaced tickets, descriptions and lists.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "support.hpp"

namespace {

using support::Pair;
using support::Tables;
using namespace std::chrono_literals;
constexpr auto unknown = std::nullopt;

class Requests : public Tables, public ::testing::WithParamInterface<const char*> {
 protected:
  /// A server and a client of the transport that is tested.
  static Pair make() {
    return Pair({}, std::string(GetParam()) == "tcp" ? "tcp://127.0.0.1:0" : support::address());
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, Requests, ::testing::Values("shm", "tcp"),
                         [](const auto& test) { return std::string(test.param); });

// Promise: headers arrive as they were sent, both ways: in order, with repeated keys and any bytes.
TEST_P(Requests, HeadersGoBothWays) {
  const Pair pair = make();
  const dipc::Headers sent = {{"twice", "1"}, {"bytes", std::string("\0\xff", 2)}, {"twice", "2"},
                              {"empty", ""}};
  pair.server
      .set_handler([&sent](dipc::RequestRef request) {
        EXPECT_EQ(request.headers().value(), sent);
        EXPECT_TRUE(request.add_headers(request.headers().value()).ok());
        EXPECT_TRUE(request.add_headers({{"ticket", request.ticket().value()}}).ok());
        return support::plain_stream(2, 10);
      })
      .value();
  dipc::GetOptions options;
  options.headers = sent;
  auto stream = pair.client.get(pair.uri, "a query", options).value();
  const auto answer = stream.headers().value();
  auto expected = sent;
  EXPECT_NE(answer, expected);
  EXPECT_EQ(answer, expected.add("ticket", "a query"));
  EXPECT_EQ(answer.size(), 5U);
  EXPECT_EQ(answer.get("twice"), "1");
  EXPECT_EQ(answer.get_all("twice"), (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(answer.get("bytes"), std::string("\0\xff", 2));
  EXPECT_EQ(answer.get("empty"), "");
  EXPECT_EQ(answer.get("absent"), unknown);
  EXPECT_TRUE(answer.get_all("absent").empty());
  auto host = std::move(stream).to_host().value();
  EXPECT_EQ(host.headers().value(), answer);
}

TEST_P(Requests, NoHeadersAreNoHeaders) {
  const Pair pair = make();
  pair.server
      .set_handler([](dipc::RequestRef request) {
        EXPECT_TRUE(request.headers().value().empty());
        EXPECT_EQ(request.time_left(), dipc::forever);
        return support::plain_stream(1, 10);
      })
      .value();
  auto stream = pair.get("x").value();
  EXPECT_EQ(stream.headers().value(), dipc::Headers{});
  EXPECT_EQ(support::count_rows(stream).value(), 10);
}

// Promise: the host sees the time that is left, and both sides end when it has passed.
TEST_P(Requests, DeadlinesPass) {
  const Pair pair = make();
  const auto wait = [](dipc::RequestRef request) {
    while (!request.is_cancelled()) std::this_thread::sleep_for(1ms);
    EXPECT_LE(request.time_left(), 1s);
  };
  pair.server
      .set_handler([wait](dipc::RequestRef request) {
        EXPECT_LE(request.time_left(), 1h);
        if (request.ticket().value() == "fast") {
          EXPECT_GT(request.time_left(), 0ns);
        }
        if (request.ticket().value() == "late") wait(request);
        const bool is_slow = request.ticket().value() == "slow";
        return dipc::generate(support::plain_schema(),
                              [request, wait, is_slow, first = std::int64_t{0}]() mutable {
                                if (first == 20 && is_slow) wait(request);
                                if (first == 20) return dipc::DeviceArray();
                                first += 10;
                                return support::plain_batch(first - 10, 10);
                              });
      })
      .value();
  dipc::GetOptions options;
  options.deadline = 1h;
  const auto outcome = [&](std::string_view ticket) {
    auto stream = pair.client.get(pair.uri, ticket, options);
    return stream.ok() ? support::count_rows(*stream).status() : stream.status();
  };
  EXPECT_EQ(outcome("fast"), dipc::Status::ok);
  options.deadline = 200ms;
  EXPECT_EQ(outcome("slow"), dipc::Status::timeout);
  const auto late = pair.client.get(pair.uri, "late", options);
  ASSERT_EQ(late.status(), dipc::Status::timeout);
  EXPECT_NE(late.error().text().find("deadline"), std::string_view::npos);
  options.deadline = -1s;
  EXPECT_EQ(outcome("late"), dipc::Status::timeout);
}

// Promise: a handler gets every ticket that is not served by itself, with each verb; a new handler
// replaces the old one.
TEST_P(Requests, AHandlerServesAnyTicket) {
  const Pair pair = make();
  EXPECT_EQ(pair.get("a query").status(), dipc::Status::not_found);
  EXPECT_EQ(pair.client.describe(pair.uri, "a query").status(), dipc::Status::not_found);
  pair.server.publish("table", support::plain_stream(1, 5)).value();
  const auto held = std::make_shared<std::atomic<int>>(0);
  pair.server
      .set_handler([held](dipc::RequestRef request) -> dipc::Result<dipc::Stream> {
        ++*held;
        const std::string ticket = request.ticket().value();
        if (request.verb() == dipc::Verb::get) return support::plain_stream(2, 50);
        if (ticket == "a table") return support::plain_stream(1, 1);
        dipc::Description description;
        description.endpoints.push_back({ticket, {"shm:@there", "tcp://there:1"}, 4, unknown});
        request.add_headers({{"verb", request.verb() == dipc::Verb::list ? "list" : "describe"}})
            .value();
        if (request.verb() == dipc::Verb::list) return dipc::to_stream(description);
        EXPECT_EQ(request.verb(), dipc::Verb::describe);
        description.schema = support::plain_schema();
        description.rows = 10;
        description.batches = 0;
        return dipc::to_stream(description);
      })
      .value();
  auto stream = pair.get("a query").value();
  EXPECT_EQ(support::count_rows(stream).value(), 100);
  EXPECT_EQ(*held, 1);
  stream = pair.get("table").value();
  EXPECT_EQ(support::count_rows(stream).value(), 5);
  EXPECT_EQ(*held, 1);

  const std::string any("q\0\xff", 3);
  const auto described = pair.client.describe(pair.uri, any).value();
  table_check_schema(described.schema.get());
  EXPECT_EQ(described.rows, 10U);
  EXPECT_EQ(described.bytes, unknown);
  EXPECT_EQ(described.batches, 0U);
  EXPECT_EQ(described.headers, (dipc::Headers{{"verb", "describe"}}));
  const auto listed = pair.client.list(pair.uri, any).value();
  for (const auto& endpoints : {described.endpoints, listed}) {
    ASSERT_EQ(endpoints.size(), 1U);
    EXPECT_EQ(endpoints[0].descriptor, any);
    EXPECT_EQ(endpoints[0].uris, (std::vector<std::string>{"shm:@there", "tcp://there:1"}));
    EXPECT_EQ(endpoints[0].rows, 4U);
    EXPECT_EQ(endpoints[0].bytes, unknown);
  }
  // Here a table is the answer to another verb.
  EXPECT_EQ(pair.client.describe(pair.uri, "a table").status(), dipc::Status::invalid_data);
  EXPECT_EQ(pair.client.list(pair.uri, "a table").status(), dipc::Status::invalid_data);

  pair.server
      .set_handler([](dipc::RequestRef) -> dipc::Result<dipc::Stream> {
        return dipc::Error(dipc::Status::unsupported, "not this verb");
      })
      .value();
  EXPECT_EQ(pair.client.describe(pair.uri, "x").status(), dipc::Status::unsupported);
  ASSERT_TRUE(pair.server.remove_handler().ok());
  ASSERT_TRUE(pair.server.remove_handler().ok());
  EXPECT_EQ(pair.get("a query").status(), dipc::Status::not_found);
  EXPECT_TRUE(pair.client.list(pair.uri, "x").value().empty());
}

// Promise: a handler whose tickets are only described may return the description itself.
TEST_P(Requests, DescriptionsAreStreams) {
  const Pair pair = make();
  pair.server
      .set_handler([](dipc::RequestRef) {
        dipc::Description description;
        description.rows = 3;
        return description;
      })
      .value();
  const auto described = pair.client.describe(pair.uri, "x").value();
  EXPECT_FALSE(described.schema);
  EXPECT_EQ(described.rows, 3U);
  EXPECT_EQ(described.batches, unknown);
  EXPECT_TRUE(described.endpoints.empty());
}

TEST_P(Requests, TheServersTicketsAreDescribedAndListed) {
  const Pair pair = make();
  const auto provider = [](dipc::RequestRef) { return support::plain_stream(1, 1); };
  pair.server.publish("a/table", support::plain_stream(3, 100)).value();
  pair.server.serve("a/made", provider).value();
  pair.server.serve("b", provider).value();

  const auto table = pair.client.describe(pair.uri, "a/table").value();
  table_check_schema(table.schema.get());
  EXPECT_EQ(table.rows, 300U);
  EXPECT_EQ(table.batches, 3U);
  EXPECT_GT(table.bytes, 0U);
  EXPECT_TRUE(table.headers.empty());
  ASSERT_EQ(table.endpoints.size(), 1U);
  EXPECT_EQ(table.endpoints[0].descriptor, "a/table");
  EXPECT_TRUE(table.endpoints[0].uris.empty());
  EXPECT_EQ(table.endpoints[0].rows, 300U);

  // Nothing is known about a provider's ticket until the host describes it.
  auto made = pair.client.describe(pair.uri, "a/made").value();
  EXPECT_FALSE(made.schema);
  EXPECT_EQ(made.rows, unknown);
  EXPECT_EQ(made.bytes, unknown);
  EXPECT_EQ(made.batches, unknown);
  ASSERT_EQ(made.endpoints.size(), 1U);
  dipc::Description told;
  told.schema = support::plain_schema();
  told.rows = 1;
  told.bytes = 8;
  EXPECT_EQ(pair.server.set_description("c", told).status(), dipc::Status::not_found);
  ASSERT_TRUE(pair.server.set_description("a/made", told).ok());
  EXPECT_TRUE(told.schema);
  made = pair.client.describe(pair.uri, "a/made").value();
  table_check_schema(made.schema.get());
  EXPECT_EQ(made.rows, 1U);
  EXPECT_EQ(made.bytes, 8U);
  EXPECT_EQ(made.batches, unknown);
  EXPECT_EQ(pair.client.describe(pair.uri, "c").status(), dipc::Status::not_found);

  const auto all = pair.client.list(pair.uri).value();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[2].descriptor, "b");
  EXPECT_EQ(all[2].rows, unknown);
  const auto some = pair.client.list(pair.uri, "a/").value();
  ASSERT_EQ(some.size(), 2U);
  EXPECT_EQ(some[0].descriptor, "a/made");
  EXPECT_EQ(some[0].rows, 1U);
  EXPECT_EQ(some[0].bytes, 8U);
  EXPECT_EQ(some[1].descriptor, "a/table");
  EXPECT_EQ(some[1].rows, 300U);
  EXPECT_EQ(some[1].bytes, table.bytes);
  EXPECT_TRUE(some[1].uris.empty());
  EXPECT_TRUE(pair.client.list(pair.uri, "c").value().empty());
}

// Promise: the options of a get hold for other questions, too.
TEST_P(Requests, QuestionsHaveHeadersAndDeadlines) {
  const Pair pair = make();
  pair.server
      .set_handler([](dipc::RequestRef request) {
        EXPECT_EQ(request.headers().value().get("user"), "ada");
        while (!request.is_cancelled()) std::this_thread::sleep_for(1ms);
        return dipc::Description();
      })
      .value();
  dipc::GetOptions options;
  options.headers.add("user", "ada");
  options.deadline = 200ms;
  EXPECT_EQ(pair.client.describe(pair.uri, "x", options).status(), dipc::Status::timeout);
  EXPECT_EQ(pair.client.list(pair.uri, "x", options).status(), dipc::Status::timeout);
  const auto cancel = dipc::Cancel::make().value();
  ASSERT_TRUE(cancel.trigger().ok());
  options.deadline = dipc::forever;
  EXPECT_EQ(pair.client.describe(pair.uri, "x", options, &cancel).status(),
            dipc::Status::cancelled);
  EXPECT_EQ(pair.client.list(pair.uri, "x", options, &cancel).status(), dipc::Status::cancelled);
}

// Promise: a new table replaces the old one, whose streams go on.
TEST_P(Requests, ATicketIsReplaced) {
  const Pair pair = make();
  pair.server.publish("table", support::plain_stream(50, 1000)).value();
  auto old = pair.get("table").value();
  const auto first = old.next().value();
  auto schema = support::plain_schema();
  auto batches = support::plain_batches(1, 7);
  ASSERT_TRUE(pair.server.replace("table", std::move(schema), std::move(batches)).ok());
  // NOLINTBEGIN(bugprone-use-after-move): what a move leaves is the promise
  EXPECT_FALSE(schema);
  EXPECT_TRUE(batches.empty());
  // NOLINTEND(bugprone-use-after-move)
  auto fresh = pair.get("table").value();
  EXPECT_EQ(support::count_rows(fresh).value(), 7);
  std::int64_t rows = first->array.length;
  for (const dipc::DeviceArray& batch : old) {
    table_check(&batch->array, rows, batch->array.length);
    rows += batch->array.length;
  }
  EXPECT_EQ(rows, 50000);
  // A provider is replaced as well, and a ticket that is not there is added.
  pair.server.serve("made", [](dipc::RequestRef) { return support::plain_stream(1, 1); }).value();
  for (const char* ticket : {"made", "new"}) {
    ASSERT_TRUE(pair.server.replace(ticket, support::plain_stream(2, 4)).ok());
    fresh = pair.get(ticket).value();
    EXPECT_EQ(support::count_rows(fresh).value(), 8);
  }
  EXPECT_EQ(pair.server.tickets().value().size(), 3U);
}

// Promise: what is not allowed is refused before it is sent, and the error names it.
TEST_F(Tables, WrongHeadersAndEndpointsAreRefused) {
  const Pair pair;
  std::atomic<int> calls = 0;
  pair.server
      .set_handler([&calls](dipc::RequestRef request) {
        calls++;
        EXPECT_EQ(request.add_headers({{"Key", ""}}).status(), dipc::Status::invalid_argument);
        EXPECT_EQ(request.add_headers({{"key", std::string(40000, 'x')}}).status(),
                  dipc::Status::invalid_argument);
        return support::plain_stream(1, 1);
      })
      .value();
  const std::pair<std::string, std::string_view> wrong[] = {
      {"Key", "other characters"}, {"dipc-key", "itself"}, {std::string("a\0b", 3), "NUL"}};
  dipc::GetOptions options;
  for (const auto& [key, part] : wrong) {
    options.headers = {{key, "value"}};
    const auto refused = pair.client.get(pair.uri, "x", options);
    ASSERT_EQ(refused.status(), dipc::Status::invalid_argument);
    EXPECT_NE(refused.error().text().find(part), std::string_view::npos) << refused.error().text();
  }
  options.headers = {{"large", std::string(std::size_t{64} << 10, 'x')}};
  EXPECT_EQ(pair.client.describe(pair.uri, "x", options).status(), dipc::Status::invalid_argument);
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(pair.get("x").ok());
  EXPECT_EQ(calls, 1);

  dipc::Description description;
  description.endpoints.push_back({"x", {std::string("shm:@a\0b", 8)}});
  EXPECT_EQ(dipc::to_stream(description).status(), dipc::Status::invalid_uri);
  description.endpoints[0].uris = {"caf\xe9"};
  EXPECT_EQ(dipc::to_stream(description).status(), dipc::Status::invalid_argument);
  description.endpoints[0].uris.clear();
  description.endpoints[0].rows = std::uint64_t{1} << 63U;
  EXPECT_EQ(dipc::to_stream(description).status(), dipc::Status::invalid_argument);
  EXPECT_EQ(dipc::Stream().headers().status(), dipc::Status::invalid_argument);
  EXPECT_EQ(support::plain_stream(1, 1).headers().status(), dipc::Status::invalid_argument);
}

// Promise: a stream that was handed to the host keeps its status, its figures, its metadata and its
// headers.
TEST_F(Tables, HostStreamsKeepWhatTheirStructsCannotSay) {
  const Pair pair;
  const dipc::Exception enough(dipc::Status::already_exists, "enough");
  pair.server
      .serve("table",
             [enough](dipc::RequestRef request) {
               request.add_headers({{"key", "value"}}).value();
               return dipc::generate(support::plain_schema(),
                                     [enough, first = std::int64_t{0}]() mutable {
                                       if (first == 20) throw enough;
                                       first += 10;
                                       return support::plain_batch(first - 10, 10);
                                     });
             })
      .value();
  auto host = pair.get("table").value().to_host().value();
  EXPECT_EQ((*host.next())->length, 10);
  EXPECT_EQ((*host.next())->length, 10);
  EXPECT_EQ(host.stat(dipc::StreamStat::rows).value(), 20U);
  EXPECT_EQ(host.metadata().value(), dipc::Metadata{});
  EXPECT_EQ(host.headers().value(), (dipc::Headers{{"key", "value"}}));
  for (int turn = 0; turn < 2; turn++) {
    const auto failed = host.next();
    ASSERT_EQ(failed.status(), dipc::Status::already_exists);
    EXPECT_EQ(failed.error().text(), "the server: enough");
    EXPECT_EQ(failed.error().source()->text(), "enough");
  }
  host.reset();
  EXPECT_EQ(host.stat(dipc::StreamStat::rows).status(), dipc::Status::invalid_argument);
  EXPECT_EQ(host.metadata().status(), dipc::Status::invalid_argument);
  EXPECT_EQ(host.headers().status(), dipc::Status::invalid_argument);
}

}  // namespace
