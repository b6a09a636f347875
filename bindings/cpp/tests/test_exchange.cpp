// Tables that a client and a server exchange, and requests that wait in event loops. The server is a
// process of its own.
#include <poll.h>

#include <array>
#include <chrono>
#include <optional>
#include <thread>

#include "process.hpp"
#include "support.hpp"

namespace {

using support::Tables;
using namespace std::chrono_literals;

constexpr std::int64_t rows = 100;
constexpr std::int64_t batches = 50;

/// Answers an exchange as its descriptor says.
dipc::Result<dipc::Stream> answer_exchange(const dipc::RequestRef& request,
                                           const std::string& name) {
  if (name == "refuse") return dipc::Error(dipc::Status::permission, "not this one");
  auto schema = request.source_schema().value();
  table_check_schema(schema.get());
  auto source = request.source().value();
  std::int64_t first = 0;
  if (name == "late") {
    const auto all = support::count_rows(source).value();
    return dipc::generate(std::move(schema), [=]() mutable {
      if (first == all) return dipc::DeviceArray();
      first += rows;
      return support::plain_batch(first - rows, rows);
    });
  }
  bool is_second = false;
  return dipc::generate(
      std::move(schema),
      [=, source = std::move(source)]() mutable -> dipc::Result<dipc::DeviceArray> {
        if (name == "early" && first == 2 * rows) return dipc::DeviceArray();
        if (name == "broken" && first == 2 * rows) {
          return dipc::Error(dipc::Status::invalid_data, "a torn tape");
        }
        is_second = name == "twice" && !is_second;
        if (name != "twice" || is_second) {
          auto batch = source.next();
          if (!batch.ok() || !*batch) return batch;
          table_check(&(*batch)->array, name == "twice" ? first / 2 : first, rows);
        }
        first += rows;
        return support::plain_batch(first - rows, rows);
      });
}

dipc::Result<dipc::Stream> answer(dipc::RequestRef request) {
  const auto name = request.ticket().value();
  switch (request.verb()) {
    case dipc::Verb::exchange:
      return answer_exchange(request, name);
    case dipc::Verb::put: {
      auto source = request.source().value();
      auto counted = support::count_rows(source);
      if (!counted) return std::move(counted).error();
      return dipc::Stream();
    }
    case dipc::Verb::describe: {
      dipc::Description description;
      description.rows = 42;
      return dipc::to_stream(description);
    }
    case dipc::Verb::list: {
      dipc::Description all;
      all.endpoints = {{"one"}, {"two"}};
      return dipc::to_stream(all);
    }
    case dipc::Verb::get:
      if (name == "slow") {
        while (!request.is_cancelled()) std::this_thread::sleep_for(1ms);
      }
      if (name != "table") return dipc::Error(dipc::Status::not_found, "no such table");
      return support::plain_stream(batches, rows);
  }
  return dipc::Error(dipc::Status::unsupported, "another verb");
}

class Exchanging : public Tables, public ::testing::WithParamInterface<const char*> {
 protected:
  static void SetUpTestSuite() { process.emplace(answer); }
  static void TearDownTestSuite() { EXPECT_EQ(process->end(), 0); }

  static std::string uri() { return process->uri(GetParam()); }

  dipc::Exchange open(std::string_view name) {
    dipc::GetOptions window;
    window.window = dipc::Window{2, UINT64_MAX};
    return client_.exchange(uri(), name, support::plain_schema(), {}, window).value();
  }

  static std::optional<support::Process> process;

  dipc::Client client_ = dipc::Client::make().value();
};
std::optional<support::Process> Exchanging::process;
INSTANTIATE_TEST_SUITE_P(Transports, Exchanging, ::testing::Values("shm", "tcp"),
                         [](const auto& test) { return std::string(test.param); });

dipc::Result<void> push(dipc::Put& put, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i++) {
    auto pushed = put.push(support::plain_batch(i * rows, rows));
    if (!pushed) return pushed;
  }
  return {};
}

/// Waits by the descriptor until `attempt` gives something.
template <class Owner, class F>
auto wait_for(const Owner& owner, F&& attempt) {
  for (;;) {
    auto found = attempt();
    if (!found.ok() || found->has_value()) return found;
    pollfd polled = {owner.fd().value(), POLLIN, 0};
    EXPECT_GT(poll(&polled, 1, 60'000), 0);
  }
}

template <class T>
dipc::Result<T> wait_for(const dipc::Pending<T>& pending) {
  auto found = wait_for(pending, [&] { return pending.try_take(); });
  if (!found.ok()) return std::move(found).error();
  return **std::move(found);
}

// Promise: two threads send and read at once; a server answers each batch once or twice, or all of
// them after the end.
TEST_P(Exchanging, TwoThreadsExchange) {
  for (const auto& [name, times] : {std::pair("once", 1), std::pair("twice", 2), {"late", 1}}) {
    auto both = open(name);
    std::thread sending([&put = both.put] {
      EXPECT_TRUE(push(put, batches).ok());
      EXPECT_EQ(put.finish().value(), static_cast<std::uint64_t>(batches));
    });
    table_check_schema(both.answers.schema().value().get());
    EXPECT_EQ(support::count_rows(both.answers).value(), batches * rows * times) << name;
    sending.join();
  }
}

// Promise: the server may end its table first. The client's table then fails or is taken whole.
TEST_P(Exchanging, TheServerMayEndFirst) {
  auto both = open("early");
  ASSERT_TRUE(push(both.put, 2).ok());
  EXPECT_EQ(support::count_rows(both.answers).value(), 2 * rows);
}

// Promise: an error at either side ends both tables, and a refusal comes before the first batch.
TEST_P(Exchanging, ErrorsEndBothTables) {
  EXPECT_EQ(client_.exchange(uri(), "refuse", support::plain_schema()).status(),
            dipc::Status::permission);
  auto broken = open("broken");
  ASSERT_TRUE(push(broken.put, 2).ok());
  const auto read = support::count_rows(broken.answers);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().text().find("a torn tape"), std::string_view::npos);
  EXPECT_EQ(broken.put.finish().status(), dipc::Status::invalid_data);

  auto failed = open("once");
  ASSERT_TRUE(push(failed.put, 1).ok());
  ASSERT_TRUE(failed.put.fail({dipc::Status::invalid_data, "a bad row"}).ok());
  EXPECT_FALSE(support::count_rows(failed.answers).ok());
}

// Rule S10: requests of an event loop share a connection, unless the client's options say otherwise.
TEST_P(Exchanging, RequestsShareAConnection) {
  constexpr std::uint64_t count = 10;
  dipc::ClientOptions alone;
  alone.connections = 0;
  for (const auto& [options, made] : {std::pair{dipc::ClientOptions{}, std::uint64_t{1}}, std::pair{alone, count}}) {
    const auto client = dipc::Client::make(options).value();
    std::vector<dipc::Pending<dipc::Stream>> pending;
    for (std::uint64_t i = 0; i < count; i++) pending.push_back(client.start_get(uri(), "table").value());
    std::vector<dipc::Stream> streams;
    for (auto& each : pending) streams.push_back(wait_for(std::move(each)).value());
    for (auto& stream : streams) EXPECT_EQ(support::count_rows(stream).value(), batches * rows);
    EXPECT_EQ(client.stat(dipc::ClientStat::connections_made).value(), made);
  }
}

// Promise: an event loop connects without a wait, with every verb.
TEST_P(Exchanging, RequestsWaitInAnEventLoop) {
  auto table = wait_for(client_.start_get(uri(), "table").value()).value();
  EXPECT_EQ(support::count_rows(table).value(), batches * rows);
  EXPECT_EQ(wait_for(client_.start_describe(uri(), "any").value()).value().rows, 42U);

  auto list = wait_for(client_.start_list(uri()).value()).value();
  std::vector<dipc::Endpoint> tickets;
  for (const dipc::DeviceArray& batch : list) {
    ASSERT_TRUE(dipc::read_list(list.schema().value(), batch, tickets).ok());
  }
  ASSERT_EQ(tickets.size(), 2U);
  EXPECT_EQ(tickets[1].descriptor, "two");

  auto put = wait_for(client_.start_put(uri(), "t", support::plain_schema()).value()).value();
  ASSERT_TRUE(push(put, 3).ok());
  EXPECT_EQ(put.finish().value(), 3U);

  const auto pending = client_.start_exchange(uri(), "once", support::plain_schema()).value();
  auto both = wait_for(pending).value();
  EXPECT_EQ(pending.try_take().status(), dipc::Status::invalid_argument);
  ASSERT_TRUE(push(both.put, 1).ok());
  const auto batch =
      wait_for(both.answers, [&] { return both.answers.try_next(); }).value().value();
  table_check(&batch->array, 0, rows);
  EXPECT_EQ(both.put.finish().value(), 1U);
}

// Promise: one thread sends and reads by two descriptors, each of which tells of its own table.
TEST_P(Exchanging, EachDescriptorTellsOfItsTable) {
  auto both = open("late");
  // There is no schema yet, and the call does not wait for one.
  EXPECT_FALSE(both.answers.try_next().value().has_value());
  ASSERT_TRUE(push(both.put, batches).ok());
  std::int64_t read = 0;
  bool is_finished = false;
  bool is_at_end = false;
  while (!is_finished || !is_at_end) {
    std::array<pollfd, 2> polled = {pollfd{both.put.fd().value(), POLLIN, 0},
                                    pollfd{both.answers.fd().value(), POLLIN, 0}};
    if (is_finished) polled[0].fd = -1;
    if (is_at_end) polled[1].fd = -1;
    ASSERT_GT(poll(polled.data(), polled.size(), 10'000), 0) << read << " rows, " << is_finished;
    if (polled[0].revents != 0) is_finished = both.put.try_finish().value().has_value();
    if (polled[1].revents == 0) continue;
    for (;;) {
      const auto batch = both.answers.try_next().value();
      if (!batch.has_value()) break;
      is_at_end = !*batch;
      if (is_at_end) break;
      read += (*batch)->array.length;
    }
  }
  EXPECT_EQ(read, batches * rows);
}

// Promise: a failed request gives the same error as the call that waits, at every attempt; a token
// ends a request, and so does the end of its object.
TEST_P(Exchanging, RequestsFailAndEnd) {
  const auto missing = client_.start_get(uri(), "nothing").value();
  EXPECT_EQ(wait_for(missing).status(), dipc::Status::not_found);
  EXPECT_EQ(missing.try_take().status(), dipc::Status::not_found);
  EXPECT_EQ(client_.start_get("shm:\0x", "t").ok(), false);

  EXPECT_EQ(client_.start_put(uri(), "t", dipc::Schema()).status(),
            dipc::Status::invalid_argument);
  EXPECT_FALSE(client_.start_put("nowhere", "t", support::plain_schema()).ok());

  const auto cancel = dipc::Cancel::make().value();
  const auto cancelled = client_.start_get(uri(), "slow", {}, &cancel).value();
  EXPECT_FALSE(cancelled.try_take().value().has_value());
  ASSERT_TRUE(cancel.trigger().ok());
  EXPECT_EQ(wait_for(cancelled).status(), dipc::Status::cancelled);
  const auto left = client_.start_get(uri(), "slow").value();
  EXPECT_FALSE(left.try_take().value().has_value());
}

// Promise: the pull form exchanges tables, too.
TEST_P(Exchanging, ThePullFormExchanges) {
  const bool is_tcp = std::string(GetParam()) == "tcp";
  support::Pair pair({}, is_tcp ? "tcp://127.0.0.1:0" : support::address());
  pair.server.set_handler_pull().value();
  std::thread host([&] {
    auto request = pair.server.next_request(60s).value().value();
    EXPECT_EQ(request.verb(), dipc::Verb::exchange);
    const auto schema = request.source_schema().value();
    auto source = request.source().value();
    request.start(schema).value();
    for (dipc::DeviceArray& batch : source) request.push(std::move(batch)).value();
    request.finish().value();
  });
  auto both = pair.client.exchange(pair.uri, "pull", support::plain_schema()).value();
  std::thread sending([&put = both.put] {
    EXPECT_TRUE(push(put, batches).ok());
    EXPECT_TRUE(put.finish().ok());
  });
  EXPECT_EQ(support::count_rows(both.answers).value(), batches * rows);
  sending.join();
  host.join();
}

}  // namespace
