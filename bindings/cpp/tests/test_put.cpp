// Tables that a client sends, to a server in a process of its own.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <optional>
#include <thread>

#include "process.hpp"
#include "support.hpp"

namespace {

using support::Process;
using support::Tables;
using namespace std::chrono_literals;

constexpr std::int64_t rows = 1000;

/// Takes tables as their descriptors say.
dipc::Result<dipc::Stream> take(dipc::RequestRef request) {
  const auto name = request.ticket().value();
  if (request.verb() != dipc::Verb::put) return dipc::Error(dipc::Status::unsupported, "no");
  table_check_schema(request.source_schema().value().get());
  if (name == "refuse") return dipc::Error(dipc::Status::permission, "not this one");
  if (name == "nothing") return dipc::Stream();
  if (name == "stream") return support::plain_stream(1, 1);
  request.add_headers(request.headers().value()).value();
  auto source = request.source().value();
  if (request.source().status() != dipc::Status::invalid_argument) return dipc::Stream();
  if (name == "slow") {
    while (!request.is_cancelled()) std::this_thread::sleep_for(1ms);
    return dipc::Error(dipc::Status::cancelled, "at last");
  }
  std::uint64_t batches = 0;
  for (const dipc::DeviceArray& batch : source) {
    table_check(&batch->array, static_cast<std::int64_t>(batches) * rows, rows);
    batches++;
    if (name == "crash") raise(SIGKILL);
    if (name == "half") return dipc::Stream();
    request.result(batches, name).value();
  }
  return dipc::Stream();
}

class Putting : public Tables, public ::testing::WithParamInterface<const char*> {
 protected:
  static void SetUpTestSuite() {
    for (auto& process : processes) process.emplace(take);
  }
  static void TearDownTestSuite() {
    // A later process inherits the pipes of the earlier ones.
    for (auto at = processes.rbegin(); at != processes.rend(); ++at) EXPECT_EQ((*at)->end(), 0);
  }

  static std::string uri(std::size_t process = 0) {
    return processes.at(process)->uri(GetParam());
  }

  dipc::Put open(std::string_view name, const dipc::PutOptions& options = {},
                 const dipc::Cancel* cancel = nullptr) {
    return client_.put_open(uri(), name, support::plain_schema(), options, cancel).value();
  }

  /// The second and the third process die.
  static std::array<std::optional<Process>, 3> processes;

  dipc::Client client_ = dipc::Client::make().value();
};
std::array<std::optional<Process>, 3> Putting::processes;
INSTANTIATE_TEST_SUITE_P(Transports, Putting, ::testing::Values("shm", "tcp"),
                         [](const auto& test) { return std::string(test.param); });

/// Pushes batches until one fails.
dipc::Result<void> push(dipc::Put& put, std::int64_t batches,
                        const table_memory* memory = nullptr) {
  for (std::int64_t i = 0; i < batches; i++) {
    dipc::DeviceArray batch;
    table_batch(batch.get(), i * rows, rows, memory);
    auto pushed = put.push(std::move(batch));
    // NOLINTNEXTLINE(bugprone-use-after-move): a failure moves nothing
    EXPECT_EQ(static_cast<bool>(batch), !pushed.ok());
    if (!pushed) return pushed;
  }
  return {};
}

// Promise: a table crosses in both forms, with headers both ways, and the host's results come back.
TEST_P(Putting, TablesCross) {
  dipc::PutOptions options;
  options.headers.add("key", "value");
  auto put = client_.put(uri(), "a stream", support::plain_stream(20, rows), options).value();
  EXPECT_EQ(put.headers().value(), options.headers);
  for (std::uint64_t batches = 1; batches <= 20; batches++) {
    const auto result = put.next_result().value();
    ASSERT_TRUE(result);
    EXPECT_EQ(result.batches, batches);
    EXPECT_EQ(result.bytes, "a stream");
  }
  EXPECT_FALSE(put.next_result().value());
  EXPECT_EQ(put.finish().value(), 20U);
  EXPECT_TRUE(put.is_over());

  auto pushed = open("batches");
  ASSERT_TRUE(push(pushed, 20).ok());
  EXPECT_FALSE(pushed.is_over());
  EXPECT_EQ(pushed.finish().value(), 20U);
  EXPECT_EQ(pushed.next_result().value().batches, 1U);
  EXPECT_EQ(pushed.stat(dipc::PutStat::batches).value(), 20U);
  EXPECT_EQ(push(pushed, 1).status(), dipc::Status::invalid_argument);
}

// Promise: over shared memory an arena's blocks are lent and not copied, and they come back.
TEST_P(Putting, AnArenaIsLent) {
  const auto arena = dipc::Arena::make().value();
  const table_memory memory = {
      [](void* userdata, std::size_t size) {
        return static_cast<dipc::Arena*>(userdata)->alloc(size).value().release();
      },
      [](void*, void* block) { dipc::Arena::dealloc(block); },
      const_cast<dipc::Arena*>(&arena),
  };
  auto put = open("lent");
  ASSERT_TRUE(push(put, 20, &memory).ok());
  EXPECT_EQ(put.finish().value(), 20U);
  const bool is_shm = std::string(GetParam()) == "shm";
  EXPECT_EQ(put.stat(dipc::PutStat::bytes_copied).value(), 0U);
  EXPECT_EQ(put.stat(dipc::PutStat::bytes_lent).value() > 0, is_shm);
  EXPECT_EQ(put.stat(dipc::PutStat::bytes_sent).value() == 0, is_shm);
  table_wait_live(0);
  EXPECT_EQ(arena.stat(dipc::ArenaStat::used_bytes).value(), 0U);
}

// Promise: a refusal comes before the first batch, and the stream still belongs to the caller.
TEST_P(Putting, ARefusalLeavesTheStream) {
  auto source = support::plain_stream(20, rows);
  const auto refused = client_.put(uri(), "refuse", std::move(source));
  EXPECT_EQ(refused.status(), dipc::Status::permission);
  EXPECT_NE(refused.error().text().find("not this one"), std::string_view::npos);
  // NOLINTNEXTLINE(bugprone-use-after-move): a failure moves nothing
  EXPECT_TRUE(source);
  EXPECT_EQ(client_.put_open("shm:\0x", "t", support::plain_schema()).ok(), false);
  dipc::PutOptions options;
  options.connections = 17;
  EXPECT_EQ(client_.put(uri(), "t", support::plain_stream(1, 1), options).status(),
            dipc::Status::invalid_argument);
}

// Promise: a host that leaves a table fails it, and the client learns why.
TEST_P(Putting, AHostThatLeavesATableFailsIt) {
  const std::pair<const char*, const char*> cases[] = {
      {"half", "before its end"}, {"nothing", "did not take"}, {"stream", "gave a stream"}};
  for (const auto& [name, text] : cases) {
    auto put = client_.put_open(uri(), name, support::plain_schema());
    dipc::Result<std::uint64_t> finished = dipc::Error(dipc::Status::busy, "not yet");
    if (!put) {
      finished = put.error();
    } else if (auto pushed = push(*put, 100); !pushed) {
      finished = pushed.error();
    } else {
      finished = put->finish();
    }
    ASSERT_EQ(finished.status(), dipc::Status::provider) << name;
    EXPECT_NE(finished.error().text().find(text), std::string_view::npos)
        << finished.error().text();
  }
}

// Promise: a table that its client fails, or leaves, never ends for the host.
TEST_P(Putting, AClientLeavesATable) {
  auto broken = client_.put(uri(), "broken", support::plain_stream(20, rows, 5)).value();
  EXPECT_EQ(broken.finish().status(), dipc::Status::provider);
  auto failed = open("failed");
  ASSERT_TRUE(push(failed, 5).ok());
  ASSERT_TRUE(failed.fail({dipc::Status::invalid_data, "a bad row"}).ok());
  EXPECT_EQ(failed.finish().error().text(), "a bad row");
  auto left = open("left");
  ASSERT_TRUE(push(left, 5).ok());
}

// Promise: a cancel token and the limits of time end a put that waits.
TEST_P(Putting, WaitsEnd) {
  const auto cancel = dipc::Cancel::make().value();
  auto cancelled = open("slow", {}, &cancel);
  std::thread later([&cancel] {
    std::this_thread::sleep_for(20ms);
    EXPECT_TRUE(cancel.trigger().ok());
  });
  EXPECT_EQ(cancelled.finish().status(), dipc::Status::cancelled);
  later.join();
  dipc::PutOptions options;
  options.stall_timeout = 100ms;
  auto stalled = open("slow", options);
  dipc::Result<std::optional<std::uint64_t>> finished = stalled.try_finish();
  while (finished.ok()) {
    EXPECT_FALSE(finished->has_value());
    pollfd polled = {stalled.fd().value(), POLLIN, 0};
    ASSERT_GT(poll(&polled, 1, 60'000), 0);
    finished = stalled.try_finish();
  }
  EXPECT_EQ(finished.status(), dipc::Status::timeout);
  EXPECT_TRUE(stalled.is_over());
}

// Promise: one thread sends a table in an event loop.
TEST_P(Putting, APutIsPolled) {
  auto put = open("polled");
  pollfd polled = {put.fd().value(), POLLIN, 0};
  for (std::int64_t first = 0; first < 200 * rows;) {
    auto batch = support::plain_batch(first, rows);
    if (put.try_push(std::move(batch)).value()) {
      first += rows;
    } else {
      ASSERT_GT(poll(&polled, 1, 60'000), 0);
    }
  }
  std::uint64_t results = 0;
  while (put.try_next_result().value().has_value()) results++;
  for (;;) {
    const auto finished = put.try_finish().value();
    if (finished.has_value()) {
      EXPECT_EQ(*finished, 200U);
      break;
    }
    ASSERT_GT(poll(&polled, 1, 60'000), 0);
  }
  while (put.try_next_result().value().value()) results++;
  EXPECT_EQ(results, 200U);
}

// Promise: a server that dies ends the table with an error, and the batches come back.
TEST_P(Putting, AServerDies) {
  const std::size_t which = std::string(GetParam()) == "tcp" ? 2 : 1;
  auto put = client_.put_open(uri(which), "crash", support::plain_schema()).value();
  auto pushed = push(put, 10);
  const auto status = pushed.ok() ? put.finish().status() : pushed.status();
  EXPECT_EQ(status, dipc::Status::disconnected);
  EXPECT_TRUE(WIFSIGNALED(processes.at(which)->end()));
}

// Promise: the pull form takes tables too.
TEST_P(Putting, TablesAreTakenInThePullForm) {
  const bool is_tcp = std::string(GetParam()) == "tcp";
  support::Pair pair({}, is_tcp ? "tcp://127.0.0.1:0" : support::address());
  pair.server.set_handler_pull().value();
  std::thread host([&] {
    auto request = pair.server.next_request(60s).value().value();
    EXPECT_EQ(request.verb(), dipc::Verb::put);
    EXPECT_TRUE(request.source_schema().ok());
    auto source = request.source().value();
    EXPECT_EQ(support::count_rows(source).value(), 20 * rows);
    EXPECT_TRUE(request.result(20).ok());
    EXPECT_TRUE(request.finish().ok());
    EXPECT_FALSE(request.finish().ok());
  });
  auto put = pair.client.put(pair.uri, "pull", support::plain_stream(20, rows)).value();
  EXPECT_EQ(put.finish().value(), 20U);
  EXPECT_EQ(put.next_result().value().bytes, "");
  host.join();
}

}  // namespace
