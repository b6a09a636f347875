// Failures: each has a status, and a text that names the cause.
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>

#include "support.hpp"

namespace {

using support::Pair;
using support::Tables;
using namespace std::chrono_literals;

void expect_text(const dipc::Error& error, std::string_view part) {
  EXPECT_NE(error.text().find(part), std::string_view::npos) << error.text();
}

TEST_F(Tables, WhatIsNotThere) {
  const Pair pair;
  const auto ticket = pair.get("nothing");
  ASSERT_EQ(ticket.status(), dipc::Status::not_found);
  expect_text(ticket.error(), "nothing");
  EXPECT_EQ(pair.client.get("shm:@dipc-cpp-nobody", "x").status(), dipc::Status::unreachable);
  EXPECT_EQ(pair.client.get("no uri", "x").status(), dipc::Status::invalid_uri);
  EXPECT_EQ(pair.server.listen("pigeons:home").status(), dipc::Status::unsupported);
  EXPECT_EQ(pair.server.listen(pair.uri.substr(0, pair.uri.find('?'))).status(),
            dipc::Status::address_in_use);
}

// Promise: a NUL inside a URI is refused, because C would cut the text off there.
TEST_F(Tables, NulsAreNotCutOff) {
  const Pair pair;
  const std::string cut = pair.uri + std::string("\0more", 5);
  const auto got = pair.client.get(cut, "x");
  ASSERT_EQ(got.status(), dipc::Status::invalid_uri);
  expect_text(got.error(), "NUL");
  EXPECT_EQ(pair.server.listen(std::string_view("shm:@a\0b", 8)).status(),
            dipc::Status::invalid_uri);
}

// Promise: use after a move is a status, not a crash.
TEST_F(Tables, HandlesThatWereMovedFromSaySo) {
  // NOLINTBEGIN(bugprone-use-after-move): that is what is tested
  Pair pair;
  const auto server = std::move(pair.server);
  const auto client = std::move(pair.client);
  EXPECT_EQ(pair.server.listen("shm:@x").status(), dipc::Status::null_argument);
  EXPECT_EQ(pair.server.tickets().status(), dipc::Status::null_argument);
  EXPECT_EQ(pair.server.publish("x", support::plain_stream(1, 1)).status(),
            dipc::Status::null_argument);
  EXPECT_EQ(pair.server.serve("x", [](dipc::RequestRef) { return dipc::Stream(); }).status(),
            dipc::Status::null_argument);
  EXPECT_EQ(pair.server.stop().status(), dipc::Status::null_argument);
  EXPECT_EQ(pair.get("x").status(), dipc::Status::null_argument);
  auto cancel = dipc::Cancel::make().value();
  const auto other = std::move(cancel);
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.Move): what a call on it does is the promise.
  EXPECT_EQ(cancel.trigger().status(), dipc::Status::null_argument);
  EXPECT_FALSE(cancel.is_triggered());
  auto arena = dipc::Arena::make().value();
  const auto kept = std::move(arena);
  EXPECT_EQ(arena.alloc(1).status(), dipc::Status::null_argument);
  // NOLINTEND(bugprone-use-after-move)
}

TEST_F(Tables, ReleasedStreamsSaySo) {
  dipc::Stream stream;
  EXPECT_EQ(stream.next().status(), dipc::Status::invalid_argument);
  EXPECT_EQ(stream.schema().status(), dipc::Status::invalid_argument);
  EXPECT_EQ(stream.stat(dipc::StreamStat::rows).status(), dipc::Status::invalid_argument);
  EXPECT_EQ(std::move(stream).to_host().status(), dipc::Status::invalid_argument);
  dipc::HostStream host;
  EXPECT_EQ(host.next().status(), dipc::Status::invalid_argument);
  EXPECT_EQ(host.schema().status(), dipc::Status::invalid_argument);
  EXPECT_EQ(dipc::Stream::from_host(std::move(host)).status(), dipc::Status::invalid_argument);
  auto closed = support::plain_stream(1, 1);
  closed.reset();
  expect_text(closed.next().error(), "released");
}

/// What a client is told by a provider.
template <class F>
dipc::Error told(F provider) {
  const Pair pair;
  pair.server.serve("table", provider).value();
  auto stream = pair.get("table");
  if (!stream) return stream.error();
  const auto rows = support::count_rows(*stream);
  return rows.ok() ? dipc::Error(dipc::Status::ok, "the stream ended well") : rows.error();
}

// Promise: what a provider throws is the stream's error, with its text.
TEST_F(Tables, ExceptionsOfProvidersReachTheClient) {
  auto error = told([](dipc::RequestRef) -> dipc::Stream { throw std::runtime_error("no luck"); });
  EXPECT_EQ(error.status(), dipc::Status::provider);
  expect_text(error, "no luck");
  error = told([](dipc::RequestRef) -> dipc::Stream {
    throw dipc::Exception(dipc::Status::permission, "not for you");
  });
  EXPECT_EQ(error.status(), dipc::Status::permission);
  expect_text(error, "not for you");
  error = told([](dipc::RequestRef) -> dipc::Stream { throw std::bad_alloc(); });
  EXPECT_EQ(error.status(), dipc::Status::out_of_memory);
  error = told([](dipc::RequestRef) -> dipc::Stream { throw 42; });
  EXPECT_EQ(error.status(), dipc::Status::provider);
  expect_text(error, "no std::exception");
  error = told([](dipc::RequestRef) -> dipc::Result<dipc::Stream> {
    return dipc::Error(dipc::Status::not_found, "sold out");
  });
  EXPECT_EQ(error.status(), dipc::Status::not_found);
  expect_text(error, "sold out");
  // Text that is not UTF-8 arrives, except the bytes that cannot.
  error = told([](dipc::RequestRef) -> dipc::Stream { throw std::runtime_error("caf\xe9 shut"); });
  EXPECT_EQ(error.status(), dipc::Status::provider);
  expect_text(error, "caf? shut");
  error = told([](dipc::RequestRef) { return dipc::Stream(); });
  EXPECT_EQ(error.status(), dipc::Status::provider);
}

// Promise: the same for what a stream throws on its way, and for streams of other producers.
TEST_F(Tables, FailuresInMidStreamReachTheClient) {
  const auto after_two = [](auto fail) {
    return [fail](dipc::RequestRef) {
      return dipc::generate(support::plain_schema(),
                            [fail, given = std::int64_t{0}]() mutable -> dipc::Result<dipc::DeviceArray> {
                              if (given == 2) return fail();
                              return support::plain_batch(given++ * 10, 10);
                            });
    };
  };
  auto error = told(after_two([]() -> dipc::DeviceArray { throw std::runtime_error("ran dry"); }));
  EXPECT_EQ(error.status(), dipc::Status::provider);
  EXPECT_EQ(error.text(), "the server: ran dry");
  error = told(after_two([] { return dipc::Error(dipc::Status::timeout, "too slow"); }));
  EXPECT_EQ(error.status(), dipc::Status::timeout);
  EXPECT_EQ(error.text(), "the server: too slow");
  error = told([](dipc::RequestRef) { return support::plain_stream(4, 10, 2); });
  EXPECT_EQ(error.status(), dipc::Status::provider);
  expect_text(error, "broken pipe dream");
}

// Promise: read in the same process, a failed stream says why, and goes no further.
TEST_F(Tables, FailedStreamsStayFailed) {
  int calls = 0;
  auto stream = dipc::generate(support::plain_schema(), [&calls]() -> dipc::DeviceArray {
    calls++;
    throw dipc::Exception(dipc::Status::busy, "not now");
  });
  for (int turn = 0; turn < 2; turn++) {
    const auto failed = stream.next();
    ASSERT_EQ(failed.status(), dipc::Status::busy);
    EXPECT_EQ(failed.error().text(), "not now");
  }
  EXPECT_EQ(calls, 1);
  EXPECT_THROW(
      {
        for (const auto& batch : stream) static_cast<void>(batch);
      },
      dipc::Exception);
  auto plain = support::plain_stream(1, 10, 0);
  const auto failed = plain.next();
  EXPECT_EQ(failed.status(), dipc::Status::provider);
  expect_text(failed.error(), "broken pipe dream");
}

/// A provider's stream that waits until the test releases it.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void wait_until_reached() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  bool reached_ = false;
};

/// One batch, and then nothing until the gate opens.
auto one_then_wait(Gate& gate) {
  return [&gate](dipc::RequestRef) {
    return dipc::generate(support::plain_schema(), [&gate, given = false]() mutable {
      if (given) {
        gate.wait();
        return dipc::DeviceArray();
      }
      given = true;
      return support::plain_batch(0, 10);
    });
  };
}

// Promise: a token ends a wait from another thread, and nothing but that stream.
TEST_F(Tables, CancellingEndsAWait) {
  Gate gate;
  const Pair pair;
  pair.server.serve("table", one_then_wait(gate)).value();
  const auto cancel = dipc::Cancel::make().value();
  auto stream = pair.client.get(pair.uri, "table", {}, &cancel).value();
  EXPECT_TRUE(*stream.next());
  std::thread other([&] {
    gate.wait_until_reached();
    EXPECT_TRUE(cancel.trigger().ok());
  });
  EXPECT_EQ(stream.next().status(), dipc::Status::cancelled);
  other.join();
  EXPECT_TRUE(cancel.is_triggered());
  EXPECT_EQ(pair.client.get(pair.uri, "table", {}, &cancel).status(), dipc::Status::cancelled);
  gate.open();
  ASSERT_TRUE(pair.server.publish("other", support::plain_stream(1, 10)).ok());
  auto fresh = pair.get("other").value();
  EXPECT_EQ(support::count_rows(fresh).value(), 10);
}

// Promise: a provider that says nothing is given up after the time of the option.
TEST_F(Tables, SilenceEndsInATimeout) {
  Gate gate;
  const Pair pair;
  pair.server.serve("table", one_then_wait(gate)).value();
  dipc::GetOptions options;
  options.stall_timeout = 50ms;
  auto stream = pair.client.get(pair.uri, "table", options).value();
  EXPECT_TRUE(*stream.next());
  EXPECT_EQ(stream.next().status(), dipc::Status::timeout);
  gate.open();
}

// Promise: releasing a stream tells its producer.
TEST_F(Tables, ReleasingAStreamTellsTheProvider) {
  const Pair pair;
  Gate seen;
  pair.server
      .serve("endless",
             [&seen](dipc::RequestRef request) {
               return dipc::generate(support::plain_schema(), [&seen, request] {
                 if (request.is_cancelled()) {
                   seen.open();
                   return dipc::DeviceArray();
                 }
                 return support::plain_batch(0, 10);
               });
             })
      .value();
  {
    auto stream = pair.get("endless").value();
    EXPECT_TRUE(*stream.next());
  }
  // Told either by is_cancelled() or by being pulled no more: the stream is released in each case.
  ASSERT_TRUE(pair.server.stop(10s).ok());
  table_wait_live(0);
}

// Promise: a server's end is its streams' error, and a provider that hangs holds nobody up.
TEST_F(Tables, AStoppedServerEndsItsStreams) {
  Gate gate;
  auto pair = std::make_unique<Pair>();
  pair->server.serve("table", one_then_wait(gate)).value();
  auto stream = pair->get("table").value();
  EXPECT_TRUE(*stream.next());
  gate.wait_until_reached();
  std::thread other([&] { static_cast<void>(pair->server.stop(0s)); });
  const auto ended = stream.next();
  EXPECT_TRUE(ended.status() == dipc::Status::stopped ||
              ended.status() == dipc::Status::disconnected)
      << dipc::to_string(ended.status());
  other.join();
  EXPECT_EQ(pair->server.publish("x", support::plain_stream(1, 1)).status(),
            dipc::Status::stopped);
  gate.open();
  pair.reset();
}

}  // namespace
