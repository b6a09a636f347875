// Coroutines of <dipc/coroutine.hpp>, in a loop of poll() and in a bare callback.
#include <dipc/coroutine.hpp>

#include "support.hpp"

#if defined(__cpp_impl_coroutine)

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace {

using support::Pair;
using support::Tables;
using namespace std::chrono_literals;
namespace async = dipc::async;

/// A coroutine that runs until it waits, and is destroyed with this object.
class Task {
 public:
  struct promise_type {
    Task get_return_object() noexcept {
      return Task(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() { throw; }
  };

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }
  [[nodiscard]] bool is_done() const { return handle_.done(); }

 private:
  explicit Task(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}

  std::coroutine_handle<promise_type> handle_;
};

/// One thread that waits for many descriptors.
class PollLoop {
 public:
  void wait_readable(int fd, std::coroutine_handle<> waiting) {
    polled_.push_back({fd, POLLIN, 0});
    waiting_.push_back(waiting);
  }
  void forget(int fd, std::coroutine_handle<> waiting) {
    const auto at = std::find(waiting_.begin(), waiting_.end(), waiting);
    ASSERT_NE(at, waiting_.end());
    const auto place = at - waiting_.begin();
    EXPECT_EQ(polled_[static_cast<std::size_t>(place)].fd, fd);
    waiting_.erase(at);
    polled_.erase(polled_.begin() + place);
    forgotten++;
  }

  /// Runs until nothing waits.
  void run() {
    while (!waiting_.empty() && !testing::Test::HasFatalFailure()) step();
  }

  /// Waits once, and resumes what is ready.
  void step() {
    ASSERT_GT(poll(polled_.data(), polled_.size(), 60'000), 0);
    // A coroutine that is resumed may wait again, or destroy others that wait. So the loop looks
    // them up by handle.
    std::vector<std::coroutine_handle<>> ready;
    for (std::size_t i = 0; i < polled_.size(); i++) {
      if (polled_[i].revents != 0) ready.push_back(waiting_[i]);
    }
    for (const auto handle : ready) {
      const auto at = std::find(waiting_.begin(), waiting_.end(), handle);
      if (at == waiting_.end()) continue;
      polled_.erase(polled_.begin() + (at - waiting_.begin()));
      waiting_.erase(at);
      handle.resume();
    }
  }

  [[nodiscard]] std::size_t size() const { return waiting_.size(); }
  int forgotten = 0;

 private:
  std::vector<pollfd> polled_;
  std::vector<std::coroutine_handle<>> waiting_;
};

Task read(PollLoop& loop, const Pair& pair, std::string ticket, std::int64_t& rows,
          std::optional<dipc::Error>& failure) {
  auto stream = co_await async::get(loop, pair.client, pair.uri, ticket);
  if (!stream) {
    failure = stream.error();
    co_return;
  }
  for (;;) {
    auto batch = co_await async::next(loop, *stream);
    if (!batch) {
      failure = batch.error();
      co_return;
    }
    if (!*batch) co_return;
    table_check(&(*batch)->array, rows, (*batch)->array.length);
    rows += (*batch)->array.length;
  }
}

Task answer_one(PollLoop& loop, dipc::Request request, std::int64_t batches) {
  request.start(support::plain_schema()).value();
  for (std::int64_t i = 0; i < batches; i++) {
    (co_await async::push(loop, request, support::plain_batch(i * 10, 10))).value();
  }
  (co_await async::finish(loop, request)).value();
}

Task serve(PollLoop& loop, const dipc::Server& server, int requests, std::int64_t batches,
           std::vector<Task>& answers) {
  for (int i = 0; i < requests; i++) {
    answers.push_back(
        answer_one(loop, (co_await async::next_request(loop, server)).value(), batches));
  }
}

// Promise: one thread serves and reads many streams at once.
TEST_F(Tables, OneThreadServesAndReadsManyStreams) {
  constexpr int count = 30;
  dipc::ServerOptions options;
  options.max_streams = count;
  const Pair pair(options);
  pair.server.serve_pull("pulled").value();
  PollLoop loop;
  std::vector<std::int64_t> rows(count);
  std::optional<dipc::Error> failure;
  std::vector<Task> answers;
  std::vector<Task> tasks;
  answers.reserve(count);
  tasks.push_back(serve(loop, pair.server, count, 20, answers));
  for (auto& of_one : rows) tasks.push_back(read(loop, pair, "pulled", of_one, failure));
  loop.run();
  EXPECT_FALSE(failure.has_value()) << failure->text();
  EXPECT_EQ(rows, std::vector<std::int64_t>(count, 200));
  for (const Task& task : tasks) EXPECT_TRUE(task.is_done());
  EXPECT_EQ(loop.forgotten, 0);
  EXPECT_TRUE(pair.server.drain_releases().ok());
}

// Promise: the Result of co_await has the failure, with the library's status and text.
TEST_F(Tables, FailuresAreAwaited) {
  const Pair pair;
  pair.server.serve("fails", [](dipc::RequestRef) { return support::plain_stream(5, 10, 3); })
      .value();
  PollLoop loop;
  std::int64_t rows = 0;
  std::optional<dipc::Error> failure;
  const Task unknown = read(loop, pair, "unknown", rows, failure);
  loop.run();
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->status(), dipc::Status::not_found);
  const Task fails = read(loop, pair, "fails", rows, failure);
  loop.run();
  EXPECT_EQ(failure->status(), dipc::Status::provider);
  EXPECT_EQ(rows, 30);
  // Nothing waits if there is no descriptor: the error of fd() or of the call comes at once.
  auto theirs = support::plain_stream(1, 10);
  dipc::Status status = dipc::Status::ok;
  const Task other = [](PollLoop& at, dipc::Stream& stream, dipc::Status& out) -> Task {
    out = (co_await async::next(at, stream)).status();
  }(loop, theirs, status);
  EXPECT_EQ(status, dipc::Status::invalid_argument);
  EXPECT_EQ(loop.size(), 0U);
}

// Promise: a coroutine that is destroyed while it waits ends its stream, and the loop forgets it.
TEST_F(Tables, ADestroyedCoroutineEndsItsRequest) {
  const Pair pair;
  pair.server.set_handler_pull().value();
  PollLoop loop;
  std::int64_t rows = 0;
  std::optional<dipc::Error> failure;
  {
    // Destroyed before the answer.
    const Task early = read(loop, pair, "early", rows, failure);
    EXPECT_EQ(loop.size(), 1U);
  }
  EXPECT_EQ(loop.size(), 0U);
  EXPECT_EQ(loop.forgotten, 1);

  std::optional<Task> late(read(loop, pair, "late", rows, failure));
  std::optional<dipc::Request> request;
  do {
    // The early batch may come before, or not at all.
    request = pair.server.next_request(60s).value();
    ASSERT_TRUE(request.has_value());
  } while (request->ticket().value() != "late");
  request->start(support::plain_schema()).value();
  request->push(support::plain_batch(0, 10)).value();
  while (rows == 0 && !HasFatalFailure()) loop.step();
  EXPECT_EQ(loop.size(), 1U);
  late.reset();
  EXPECT_EQ(loop.size(), 0U);
  EXPECT_EQ(loop.forgotten, 2);
  pollfd polled = {request->cancel_fd().value(), POLLIN, 0};
  EXPECT_EQ(poll(&polled, 1, 60'000), 1);
  EXPECT_TRUE(request->is_cancelled());
  request.reset();
  EXPECT_TRUE(pair.server.drain_releases().ok());
}

using Callback = std::function<void(int, std::coroutine_handle<>)>;

Task next(const Callback& loop, const dipc::Server& server, std::string& ticket) {
  auto request = (co_await async::next_request(loop, server)).value();
  ticket = request.ticket().value();
}

// Promise: a callback is a loop. A handle of a coroutine that is gone frees itself when resumed.
TEST_F(Tables, ACallbackIsALoop) {
  const Pair pair;
  pair.server.serve_pull("pulled").value();
  int watched = -1;
  std::coroutine_handle<> waiting;
  const Callback loop = [&](int fd, std::coroutine_handle<> handle) {
    watched = fd;
    waiting = handle;
  };
  std::string ticket;
  {
    const Task gone = next(loop, pair.server, ticket);
    ASSERT_TRUE(waiting);
  }
  std::exchange(waiting, nullptr).resume();
  EXPECT_FALSE(waiting);

  const Task task = next(loop, pair.server, ticket);
  // The descriptor was readable without a result, so the coroutine waits again.
  std::exchange(waiting, nullptr).resume();
  ASSERT_TRUE(waiting);
  EXPECT_FALSE(task.is_done());
  const auto pending = pair.client.start_get(pair.uri, "pulled").value();
  pollfd polled = {watched, POLLIN, 0};
  ASSERT_EQ(poll(&polled, 1, 60'000), 1);
  std::exchange(waiting, nullptr).resume();
  EXPECT_TRUE(task.is_done());
  EXPECT_EQ(ticket, "pulled");
}

// Promise: puts are awaited, too.
TEST_F(Tables, APutIsAwaited) {
  const Pair pair;
  std::int64_t taken = 0;
  pair.server
      .set_handler([&taken](dipc::RequestRef request) -> dipc::Result<dipc::Stream> {
        auto source = request.source().value();
        taken = support::count_rows(source).value();
        request.result(5, "five").value();
        return dipc::Stream();
      })
      .value();
  PollLoop loop;
  std::uint64_t finished = 0;
  std::string result;
  const Task task = [](PollLoop& at, const Pair& to, std::uint64_t& count,
                       std::string& bytes) -> Task {
    auto put = (co_await async::put(at, to.client, to.uri, "t", support::plain_schema())).value();
    for (std::int64_t i = 0; i < 5; i++) {
      (co_await async::push(at, put, support::plain_batch(i * 10, 10))).value();
    }
    count = (co_await async::finish(at, put)).value();
    bytes = (co_await async::next_result(at, put)).value().bytes;
    EXPECT_FALSE((co_await async::next_result(at, put)).value());
  }(loop, pair, finished, result);
  loop.run();
  EXPECT_TRUE(task.is_done());
  EXPECT_EQ(finished, 5U);
  EXPECT_EQ(taken, 50);
  EXPECT_EQ(result, "five");
}

}  // namespace

#else

TEST(Coroutine, NeedsACompiler) {
  GTEST_SKIP() << "skipped: this compiler has no coroutines";
}

#endif
