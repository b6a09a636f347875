// Who may do what: the host's authorizer; and what clients may hold.
#include <atomic>
#include <chrono>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "process.hpp"

namespace {

using support::Pair;
using support::Tables;
using namespace std::chrono_literals;

/// Says who asks: as many rows as the name of the client is long.
dipc::Result<dipc::Stream> say_who(dipc::RequestRef request) {
  if (request.verb() == dipc::Verb::list) {
    return dipc::to_stream(dipc::Description{});
  }
  const auto name = request.principal();
  if (!name) return name.error();
  return support::plain_stream(1, *name ? static_cast<std::int64_t>((*name)->size()) : 1);
}

dipc::Result<void> decide(dipc::RequestRef request) {
  const auto ticket = request.ticket().value();
  if (ticket == "secret") return dipc::Error(dipc::Status::not_found, "not for you");
  if (ticket == "throws") throw std::runtime_error("out of paper");
  if (ticket == "busy") throw dipc::Exception(dipc::Status::busy, "come again");
  const auto peer = request.peer().value();
  if (peer.process && peer.process->uid != static_cast<std::int64_t>(getuid())) {
    return dipc::Error(dipc::Status::permission, "another user");
  }
  const auto user = request.headers().value().get("user");
  if (user) return request.set_principal(*user);
  return {};
}

dipc::ServerOptions decided() {
  dipc::ServerOptions options;
  options.authorizer = decide;
  return options;
}

class Authorizing : public Tables, public ::testing::WithParamInterface<const char*> {
 protected:
  static void SetUpTestSuite() { process.emplace(say_who, decided()); }
  static void TearDownTestSuite() { EXPECT_EQ(process->end(), 0); }

  dipc::Result<std::int64_t> rows(std::string_view ticket, const dipc::Headers& headers = {}) {
    dipc::GetOptions options;
    options.headers = headers;
    auto stream = client_.get(process->uri(GetParam()), ticket, options);
    if (!stream) return std::move(stream).error();
    return support::count_rows(*stream);
  }

  void refused(std::string_view ticket, dipc::Status status, const char* why) {
    const auto error = rows(ticket).error();
    EXPECT_EQ(error.status(), status);
    EXPECT_NE(error.text().find(why), std::string::npos) << error.text();
  }

  static std::optional<support::Process> process;

  dipc::Client client_ = dipc::Client::make().value();
};
std::optional<support::Process> Authorizing::process;
INSTANTIATE_TEST_SUITE_P(Transports, Authorizing, ::testing::Values("shm", "tcp"),
                         [](const auto& test) { return std::string(test.param); });

// Promise: handlers see the name that the authorizer gives a client, or none.
TEST_P(Authorizing, HandlersSeeThePrincipal) {
  EXPECT_EQ(rows("who", {{"user", "alice"}}).value(), 5);
  EXPECT_EQ(rows("who").value(), 1);
}

// Promise: an error that is returned or thrown refuses, with its status and text.
TEST_P(Authorizing, RefusalsHaveStatusAndText) {
  for (int i = 0; i < 2; i++) {
    refused("secret", dipc::Status::not_found, "not for you");
    refused("throws", dipc::Status::permission, "out of paper");
    refused("busy", dipc::Status::busy, "come again");
    EXPECT_GT(rows("busy").error().retry_after().value(), 0ns);
    EXPECT_EQ(rows("throws").error().retry_after(), std::nullopt);
  }
}

class Bounds : public Tables {};

// Promise: an authorizer is any callable, also without a result, and is destroyed with the last of
// the options and the server.
TEST_F(Bounds, AnAuthorizerIsDestroyedWithItsServer) {
  const auto asked = std::make_shared<std::atomic<int>>(0);
  {
    dipc::ServerOptions options;
    options.authorizer = [asked](dipc::RequestRef) { ++*asked; };
    const Pair pair(options);
    options.authorizer.reset();
    pair.server.serve("t", say_who).value();
    auto stream = pair.get("t").value();
    EXPECT_EQ(support::count_rows(stream).value(), 1);
    EXPECT_EQ(*asked, 1);
    EXPECT_GT(asked.use_count(), 1);
  }
  EXPECT_EQ(asked.use_count(), 1);
}

// Promise: in the pull form the host decides about each request before it serves it, names the
// client, and refuses by a status and a text, or by a request that it destroys undecided.
TEST_F(Bounds, TheHostDecidesInThePullForm) {
  dipc::ServerOptions options;
  options.authorizer_pull = true;
  const Pair pair(options);
  for (const char* ticket : {"t", "secret", "dropped"}) pair.server.serve_pull(ticket).value();
  std::thread client([&pair] {
    dipc::GetOptions named;
    named.headers = {{"user", "alice"}};
    auto stream = pair.client.get(pair.uri, "t", named).value();
    EXPECT_EQ(support::count_rows(stream).value(), 0);
    const auto error = pair.client.get(pair.uri, "secret").error();
    EXPECT_EQ(error.status(), dipc::Status::not_found);
    EXPECT_NE(error.text().find("not for you"), std::string::npos) << error.text();
    EXPECT_FALSE(pair.client.get(pair.uri, "dropped").ok());
  });
  {
    const auto request = std::move(*pair.server.next_request().value());
    EXPECT_TRUE(request.is_undecided());
    EXPECT_EQ(request.ticket().value(), "t");
    request.set_principal(request.headers().value().get("user").value()).value();
    request.allow().value();
    EXPECT_FALSE(request.is_undecided());
    EXPECT_EQ(request.allow().status(), dipc::Status::invalid_argument);
  }
  {
    const auto request = std::move(*pair.server.next_request().value());
    EXPECT_FALSE(request.is_undecided());
    EXPECT_EQ(request.principal().value(), "alice");
    EXPECT_EQ(request.allow().status(), dipc::Status::invalid_argument);
    request.start(support::plain_schema()).value();
    request.finish().value();
  }
  for (const char* ticket : {"secret", "dropped"}) {
    const auto request = std::move(*pair.server.next_request().value());
    EXPECT_TRUE(request.is_undecided());
    EXPECT_EQ(request.ticket().value(), ticket);
    if (request.ticket().value() == "secret") {
      request.fail(dipc::Error(dipc::Status::not_found, "not for you"));
    }
  }
  client.join();
}

// Promise: only what a client may get is listed; in the pull form requests have a principal too.
TEST_F(Bounds, ListsShowWhatTheClientMayGet) {
  const Pair pair(decided());
  pair.server.serve("secret", say_who).value();
  pair.server.serve("table", say_who).value();
  const auto listed = pair.client.list(pair.uri).value();
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0].descriptor, "table");

  pair.server.serve_pull("pulled").value();
  std::thread client([&pair] {
    dipc::GetOptions options;
    options.headers = {{"user", "alice"}};
    auto stream = pair.client.get(pair.uri, "pulled", options).value();
    EXPECT_EQ(support::count_rows(stream).value(), 0);
  });
  const auto request = std::move(*pair.server.next_request().value());
  EXPECT_EQ(request.principal().value(), "alice");
  request.start(support::plain_schema()).value();
  request.finish().value();
  client.join();
}

// Promise: past each bound the next one is refused, and told when to ask again.
TEST_F(Bounds, BusyServersSayWhenToAskAgain) {
  const auto busy = [](const dipc::ServerOptions& options, const char* limit) {
    const Pair pair(options, "tcp://127.0.0.1:0");
    std::atomic<bool> is_over = false;
    pair.server
        .serve("endless",
               [&is_over](dipc::RequestRef request) {
                 return dipc::generate(support::plain_schema(), [&is_over, request] {
                   if (is_over || request.is_cancelled()) return dipc::DeviceArray();
                   return support::plain_batch(0, 10);
                 });
               })
        .value();
    auto stream = pair.get("endless").value();
    const auto other = dipc::Client::make().value();
    const auto error = other.get(pair.uri, "endless").error();
    EXPECT_EQ(error.status(), dipc::Status::busy) << error.text();
    EXPECT_NE(error.text().find(limit), std::string::npos) << error.text();
    EXPECT_GT(error.retry_after().value_or(0ns), 0ns);
    is_over = true;
  };
  dipc::ServerOptions options;
  options.max_streams = 1;
  options.credit_timeout = dipc::forever;
  busy(options, "max_streams allows");
  options = {};
  options.max_connections = 1;
  busy(options, "max_connections allows");
}

// Promise: a limit that would shut out everybody is refused.
TEST_F(Bounds, LimitsThatAreNone) {
  const auto refused = [](const dipc::ServerOptions& options, std::string_view limit) {
    const auto made = dipc::Server::make(options);
    return made.status() == dipc::Status::invalid_argument &&
           made.error().text().find(std::string(limit) + " is 0") != std::string_view::npos;
  };
  using Options = dipc::ServerOptions;
  using Count = std::optional<std::size_t> Options::*;
  for (const auto& [limit, name] : std::initializer_list<std::pair<Count, const char*>>{
           {&Options::max_connections, "max_connections"},
           {&Options::max_connections_per_peer, "max_connections_per_peer"},
           {&Options::max_streams_per_peer, "max_streams_per_peer"},
           {&Options::max_streams_per_connection, "max_streams_per_connection"}}) {
    Options options;
    options.*limit = 0;
    EXPECT_TRUE(refused(options, name));
    options.*limit = 1;
    EXPECT_TRUE(dipc::Server::make(options).ok());
  }
  using Time = std::optional<std::chrono::nanoseconds> Options::*;
  for (const auto& [limit, name] : std::initializer_list<std::pair<Time, const char*>>{
           {&Options::credit_timeout, "credit timeout"},
           {&Options::handshake_timeout, "handshake timeout"},
           {&Options::request_timeout, "request timeout"},
           {&Options::idle_timeout, "idle timeout"}}) {
    Options options;
    options.*limit = 0ns;
    EXPECT_TRUE(refused(options, name));
    options.*limit = dipc::forever;
    EXPECT_TRUE(dipc::Server::make(options).ok());
  }
  Options options;
  options.max_request_bytes = 0;
  EXPECT_TRUE(dipc::Server::make(options).ok());
}

}  // namespace
