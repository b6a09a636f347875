// Streams and requests in event loops, and who asks.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <future>
#include <optional>
#include <thread>

#include "support.hpp"

namespace {

using support::Pair;
using support::Tables;
using namespace std::chrono_literals;

bool is_readable(int fd, std::chrono::milliseconds timeout = 0ms) {
  pollfd polled = {fd, POLLIN, 0};
  return poll(&polled, 1, static_cast<int>(timeout.count())) > 0;
}

std::size_t threads() {
  std::size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    count += task.is_directory() ? 1 : 0;
  }
  return count;
}

/// Waits by the descriptor until try_next() gives something.
template <class S>
dipc::Result<typename S::Batch> wait_for_next(S& stream) {
  for (;;) {
    auto found = stream.try_next();
    if (!found.ok()) return found.error();
    if (found->has_value()) return **std::move(found);
    if (!is_readable(stream.fd().value(), 60s)) {
      return dipc::Error(dipc::Status::timeout, "the descriptor never became readable");
    }
  }
}

class Polling : public Tables, public ::testing::WithParamInterface<const char*> {
 protected:
  static std::string address() {
    return std::string(GetParam()) == "tcp" ? "tcp://127.0.0.1:0" : support::address();
  }

  Polling() : pair_(std::in_place, dipc::ServerOptions{}, address()) {
    pair_->server.serve_pull("pulled").value();
  }

  void TearDown() override {
    pair_.reset();  // and the tables that it publishes
    Tables::TearDown();
  }

  /// A stream of the ticket "pulled", and the request for it, which has its schema.
  std::pair<dipc::Stream, dipc::Request> open(const dipc::GetOptions& options = {},
                                              const dipc::Cancel* cancel = nullptr) {
    auto stream = std::async(std::launch::async, [&] {
      return pair_->client.get(pair_->uri, "pulled", options, cancel).value();
    });
    auto request = pair_->server.next_request(60s).value().value();
    request.start(support::plain_schema()).value();
    return {stream.get(), std::move(request)};
  }

  std::optional<Pair> pair_;
};
INSTANTIATE_TEST_SUITE_P(Transports, Polling, ::testing::Values("shm", "tcp"),
                         [](const auto& test) { return std::string(test.param); });

// Promise: a batch makes the descriptor readable, and so does the end.
TEST_P(Polling, ADescriptorTellsOfBatchesAndTheEnd) {
  auto [stream, request] = open();
  const int fd = stream.fd().value();
  EXPECT_TRUE(is_readable(fd));
  EXPECT_FALSE(stream.try_next().value().has_value());
  std::thread later([&request = request] {
    std::this_thread::sleep_for(20ms);
    EXPECT_TRUE(request.push(support::plain_batch(0, 100), {{"batch", "first"}}).ok());
    EXPECT_TRUE(request.finish().ok());
  });
  const auto batch = wait_for_next(stream).value();
  table_check(&batch->array, 0, 100);
  EXPECT_EQ(stream.metadata().value(), (dipc::Metadata{{"batch", "first"}}));
  EXPECT_FALSE(wait_for_next(stream).value());
  later.join();
  EXPECT_TRUE(is_readable(fd));
  EXPECT_EQ(stream.fd().value(), fd);
  EXPECT_FALSE(stream.try_next().value().value());
  EXPECT_FALSE(stream.next().value());
  EXPECT_TRUE(pair_->server.drain_releases().ok());
}

// Promise: one thread reads several streams at once, and none has a thread of its own.
TEST_P(Polling, OneThreadReadsManyStreams) {
  constexpr std::size_t count = 20;
  pair_->server.publish("table", support::plain_stream(50, 100)).value();
  dipc::GetOptions options;
  options.window = dipc::Window{1, UINT64_MAX};
  std::vector<dipc::Stream> streams;
  streams.push_back(pair_->client.get(pair_->uri, "table", options).value());
  const auto before = threads();
  while (streams.size() < count) {
    streams.push_back(pair_->client.get(pair_->uri, "table", options).value());
  }
  std::vector<std::int64_t> rows(count);
  std::vector<pollfd> polled;
  for (const auto& stream : streams) polled.push_back({stream.fd().value(), POLLIN, 0});
  for (std::size_t left = count; left > 0;) {
    ASSERT_GT(poll(polled.data(), polled.size(), 60'000), 0);
    for (std::size_t i = 0; i < count; i++) {
      if (polled[i].revents == 0) continue;
      for (;;) {
        auto found = streams[i].try_next().value();
        if (!found.has_value()) break;
        if (!*found) {
          polled[i].fd = -1;
          left--;
          break;
        }
        table_check(&(*found)->array, rows[i], 100);
        rows[i] += (*found)->array.length;
      }
    }
    EXPECT_EQ(threads(), before);
  }
  EXPECT_EQ(rows, std::vector<std::int64_t>(count, 5000));
}

// Promise: one thread serves several streams, too, and never waits for one of the clients.
TEST_P(Polling, OneThreadPushesManyStreams) {
  constexpr std::size_t count = 10;
  dipc::GetOptions options;
  options.window = dipc::Window{1, UINT64_MAX};
  std::vector<dipc::Stream> streams;
  std::vector<std::optional<dipc::Request>> requests;
  std::vector<pollfd> polled;
  EXPECT_FALSE(is_readable(pair_->server.request_fd().value()));
  for (std::size_t i = 0; i < count; i++) {
    auto [stream, request] = open(options);
    streams.push_back(std::move(stream));
    polled.push_back({request.fd().value(), POLLIN, 0});
    requests.emplace_back(std::move(request));
  }
  std::thread reading([&] {
    for (auto& stream : streams) EXPECT_EQ(support::count_rows(stream).value(), 500);
  });
  std::vector<std::int64_t> pushed(count);
  for (std::size_t left = count; left > 0;) {
    ASSERT_GT(poll(polled.data(), polled.size(), 60'000), 0);
    for (std::size_t i = 0; i < count; i++) {
      if (polled[i].revents == 0) continue;
      bool has_room = true;
      while (has_room && pushed[i] < 500) {
        auto batch = support::plain_batch(pushed[i], 10);
        has_room = requests[i]->try_push(std::move(batch)).value();
        // NOLINTNEXTLINE(bugprone-use-after-move): without room nothing is moved
        EXPECT_NE(static_cast<bool>(batch), has_room);
        if (has_room) pushed[i] += 10;
      }
      if (has_room && requests[i]->try_finish().value()) {
        requests[i].reset();
        polled[i].fd = -1;
        left--;
      }
    }
  }
  reading.join();
  EXPECT_TRUE(pair_->server.drain_releases().ok());
}

// Promise: whatever ends a stream makes its descriptor readable.
TEST_P(Polling, EndsOfAStreamAreTold) {
  const auto cancel = dipc::Cancel::make().value();
  auto [cancelled, unused] = open({}, &cancel);
  EXPECT_FALSE(cancelled.try_next().value().has_value());
  ASSERT_TRUE(cancel.trigger().ok());
  EXPECT_EQ(wait_for_next(cancelled).status(), dipc::Status::cancelled);

  dipc::GetOptions options;
  options.deadline = 1s;
  auto [late, slow] = open(options);
  EXPECT_EQ(wait_for_next(late).status(), dipc::Status::timeout);

  auto [failed, failing] = open();
  EXPECT_FALSE(failed.try_next().value().has_value());
  failing.fail({dipc::Status::busy, "later"});
  EXPECT_EQ(wait_for_next(failed).status(), dipc::Status::busy);
}

// Promise: a client that goes makes the descriptor of its request readable.
TEST_P(Polling, ARequestHearsOfItsClientsEnd) {
  dipc::GetOptions options;
  options.window = dipc::Window{1, UINT64_MAX};
  auto [stream, request] = open(options);
  while (request.try_push(support::plain_batch(0, 10)).value()) {
  }
  stream.reset();
  dipc::Result<bool> pushed = false;
  while (pushed.ok()) {
    ASSERT_TRUE(is_readable(request.fd().value(), 60s));
    pushed = request.try_push(support::plain_batch(0, 10));
  }
  EXPECT_EQ(pushed.status(), dipc::Status::cancelled);
  EXPECT_TRUE(pair_->server.drain_releases().ok());
}

// Promise: a server that stops tells the loops of its host and of its clients.
TEST_P(Polling, AStopIsTold) {
  auto [stream, request] = open();
  EXPECT_FALSE(stream.try_next().value().has_value());
  const int requests = pair_->server.request_fd().value();
  EXPECT_FALSE(is_readable(requests));
  // The request is held here for longer than the server waits.
  EXPECT_EQ(pair_->server.stop().status(), dipc::Status::timeout);
  EXPECT_TRUE(is_readable(requests));
  EXPECT_EQ(pair_->server.next_request(0s).status(), dipc::Status::stopped);
  EXPECT_FALSE(wait_for_next(stream).ok());
  EXPECT_FALSE(request.try_finish().ok());
}

TEST_P(Polling, HostStreamsArePolled) {
  pair_->server.publish("table", support::plain_stream(5, 100)).value();
  auto host = pair_->get("table").value().to_host().value();
  std::int64_t rows = 0;
  for (;;) {
    const auto batch = wait_for_next(host).value();
    if (!batch) break;
    table_check(batch.get(), rows, 100);
    rows += batch->length;
  }
  EXPECT_EQ(rows, 500);
  // A stream of another producer has no descriptor, and a stream that was moved from has none
  // either.
  auto other = support::plain_stream(1, 10);
  EXPECT_EQ(other.fd().status(), dipc::Status::invalid_argument);
  EXPECT_EQ(other.try_next().status(), dipc::Status::invalid_argument);
  other.reset();
  EXPECT_EQ(other.fd().status(), dipc::Status::invalid_argument);
  EXPECT_EQ(other.try_next().status(), dipc::Status::invalid_argument);
}

TEST_P(Polling, ARequestSaysWhoAsks) {
  auto [stream, request] = open();
  const auto peer = request.peer().value();
  EXPECT_EQ(peer.transport, GetParam());
  EXPECT_FALSE(peer.text.empty());
  if (peer.transport == "shm") {
    ASSERT_TRUE(peer.process.has_value());
    EXPECT_EQ(peer.process->pid, getpid());
    EXPECT_EQ(peer.process->uid, getuid());
    EXPECT_EQ(peer.process->gid, getgid());
    EXPECT_FALSE(peer.address.has_value());
  } else {
    EXPECT_FALSE(peer.process.has_value());
    EXPECT_EQ(peer.address.value().rfind("127.0.0.1:", 0), 0U);
  }
  EXPECT_TRUE(request.finish().ok());
}

/// An address of this machine that others may reach; "" if it has none.
std::string public_address() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* at = all; at != nullptr && found.empty(); at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
    if ((at->ifa_flags & IFF_LOOPBACK) != 0 || (at->ifa_flags & IFF_UP) == 0) continue;
    std::array<char, INET_ADDRSTRLEN> text = {};
    const auto* address = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
    inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
    found = text.data();
  }
  freeifaddrs(all);
  return found;
}

// Promise: a secret goes where others may read it only if the program says so.
TEST_F(Tables, SecretsAreKept) {
  const std::string address = public_address();
  if (address.empty()) GTEST_SKIP() << "this machine has the loopback interface alone";
  dipc::ServerOptions server;
  server.allow_remote = true;
  const Pair pair(server, "tcp://" + address + ":0");
  pair.server.publish("table", support::plain_stream(1, 10)).value();
  dipc::GetOptions options;
  options.headers.add("authorization", "Bearer of bad news");
  EXPECT_EQ(pair.client.get(pair.uri, "table", options).status(), dipc::Status::permission);
  options.send_secrets = true;
  options.checksums = true;
  auto stream = pair.client.get(pair.uri, "table", options).value();
  EXPECT_EQ(support::count_rows(stream).value(), 10);
}

}  // namespace
