// Results, errors, and what must not compile.
#include <type_traits>

#include "support.hpp"

namespace {

// Handles and streams are moved and never copied.
template <class T>
constexpr bool moved_only = !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> &&
                            std::is_nothrow_move_constructible_v<T> &&
                            std::is_nothrow_move_assignable_v<T>;
static_assert(moved_only<dipc::Server>);
static_assert(moved_only<dipc::Client>);
static_assert(moved_only<dipc::Cancel>);
static_assert(moved_only<dipc::Arena>);
static_assert(moved_only<dipc::Arena::Block>);
static_assert(moved_only<dipc::Request>);
static_assert(moved_only<dipc::Sender>);
static_assert(moved_only<dipc::Receiver>);
static_assert(moved_only<dipc::Stream>);
static_assert(moved_only<dipc::HostStream>);
static_assert(moved_only<dipc::Schema>);
static_assert(moved_only<dipc::Description>);
static_assert(moved_only<dipc::Array>);
static_assert(moved_only<dipc::DeviceArray>);
// Only make() makes them, and no raw pointer converts to one by accident.
static_assert(!std::is_default_constructible_v<dipc::Server>);
static_assert(!std::is_constructible_v<dipc::Client, dipc_client*>);
static_assert(!std::is_convertible_v<ArrowDeviceArrayStream*, dipc::Stream>);
// A stream is turned into another only when it is given away.
template <class T, class = void>
constexpr bool has_to_host = false;
template <class T>
constexpr bool has_to_host<T, std::void_t<decltype(std::declval<T>().to_host())>> = true;
static_assert(has_to_host<dipc::Stream> && !has_to_host<dipc::Stream&>);
// A result does not convert to bool or to its value by accident.
static_assert(!std::is_convertible_v<dipc::Result<int>, bool>);
static_assert(!std::is_convertible_v<dipc::Result<int>, int>);
static_assert(std::is_nothrow_copy_constructible_v<dipc::Exception>);
// An arena's allocator is one.
static_assert(std::is_same_v<std::allocator_traits<dipc::ArenaAllocator<int>>::rebind_alloc<long>,
                             dipc::ArenaAllocator<long>>);

// Promise: every status of dipc.h has a name here, which is its name there.
TEST(Results, StatusesAreThoseOfTheHeader) {
  int named = 0;
  for (dipc_status code = -1; std::string_view(dipc_status_name(code)) != "DIPC_UNKNOWN"; code--) {
    named++;
  }
  EXPECT_EQ(-named, static_cast<dipc_status>(dipc::Status::buffer_too_small));
  EXPECT_STREQ(dipc::to_string(dipc::Status::not_found), "DIPC_ERR_NOT_FOUND");
  EXPECT_STREQ(dipc::to_string(static_cast<dipc::Status>(-999)), "DIPC_UNKNOWN");
}

TEST(Results, ValueThrowsTheError) {
  const dipc::Result<int> good = 7;
  EXPECT_EQ(good.value(), 7);
  EXPECT_EQ(*good, 7);
  EXPECT_EQ(good.status(), dipc::Status::ok);
  const dipc::Result<int> bad = dipc::Error(dipc::Status::busy, "try again");
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status(), dipc::Status::busy);
  try {
    static_cast<void>(bad.value());
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::exception& thrown) {
    EXPECT_STREQ(thrown.what(), "try again");
  }
  EXPECT_THROW(dipc::Result<void>(bad.error()).value(), dipc::Exception);
}

// Promise: taking what is not there ends the program, and reads no other memory.
TEST(ResultsDeathTest, WhatIsNotThereIsNotRead) {
  const dipc::Result<int> bad = dipc::Error(dipc::Status::busy, "try again");
  EXPECT_DEATH(static_cast<void>(*bad), "");
  EXPECT_DEATH(static_cast<void>(dipc::Result<int>(1).error()), "");
}

TEST(Results, MoveOnlyValuesComeOut) {
  dipc::Result<std::unique_ptr<int>> result = std::make_unique<int>(3);
  EXPECT_EQ(**result, 3);
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 3);
}

// Promise: an error outlives the call, and a copy outlives its original; it knows its source.
TEST(Results, ErrorsShareTheirText) {
  std::optional<dipc::Error> copy;
  {
    const auto missing = dipc::Client::make().value().get("shm:@dipc-nobody-listens", "x");
    ASSERT_FALSE(missing.ok());
    copy = missing.error();
  }
  EXPECT_EQ(copy->status(), dipc::Status::unreachable);
  EXPECT_NE(copy->text().find("dipc-nobody-listens"), std::string_view::npos);
  for (auto source = copy->source(); source.has_value(); source = source->source()) {
    EXPECT_NE(copy->text().find(source->text()), std::string_view::npos);
  }
  const dipc::Error own(dipc::Status::io, std::string(3, 'x'));
  EXPECT_EQ(own.text(), "xxx");
  EXPECT_EQ(own.os_errno(), 0);
  EXPECT_FALSE(own.source().has_value());
}

TEST(Results, MetadataGoesBothWays) {
  const dipc::Metadata pairs = {{"key", "value"}, {"", ""}, {"key", std::string("\0x", 2)}};
  const std::string bytes = dipc::encode_metadata(pairs);
  EXPECT_EQ(dipc::metadata_size(bytes.data()), bytes.size());
  EXPECT_EQ(dipc::decode_metadata(bytes), pairs);
  EXPECT_EQ(dipc::encode_metadata({}), "");
  EXPECT_EQ(dipc::decode_metadata(""), dipc::Metadata{});
  // If the bytes are cut off anywhere, it gives what came before and reads nothing beyond.
  for (std::size_t length = 0; length < bytes.size(); length++) {
    const std::string cut = bytes.substr(0, length);
    EXPECT_LE(dipc::decode_metadata(cut).size(), pairs.size());
  }
}

TEST(Results, SpansAreMadeOfWhatLiesTogether) {
  std::vector<int> numbers = {1, 2, 3};
  const dipc::Span<const int> span = numbers;
  EXPECT_EQ(span.size(), 3U);
  EXPECT_EQ(span[2], 3);
  const int plain[] = {4, 5};
  EXPECT_EQ(dipc::Span<const int>(plain).end()[-1], 5);
  static_assert(!std::is_convertible_v<std::vector<long>&, dipc::Span<const int>>);
  static_assert(!std::is_convertible_v<const std::vector<int>&, dipc::Span<int>>);
}

// Promise: a batch that cannot be read at all is reported differently from a server's wrong answer.
TEST(Results, ListsSayWhatIsWrong) {
  std::vector<dipc::Endpoint> tickets;
  EXPECT_EQ(dipc::read_list({}, {}, tickets).status(), dipc::Status::invalid_argument);
  dipc::Columns columns;
  columns.add("n", std::vector<int>{1});
  const auto schema = columns.schema();
  auto batch = std::move(columns).batch().value();
  EXPECT_EQ(dipc::read_list(schema, batch, tickets).status(), dipc::Status::invalid_data);
  batch->device_type = ARROW_DEVICE_CUDA;
  EXPECT_EQ(dipc::read_list(schema, batch, tickets).status(), dipc::Status::unsupported);
  EXPECT_TRUE(tickets.empty());
}

// Promise: no text is silently cut off at a NUL.
TEST(Results, TextsWithANulAreRefused) {
  const std::string text("a\0b", 3);
  dipc::ClientOptions options;
  options.tls_server_name = text;
  const auto client = dipc::Client::make(options);
  EXPECT_EQ(client.status(), dipc::Status::invalid_argument);
  EXPECT_EQ(client.error().text(), "a text of the options has a NUL character in it");
  options = {};
  options.tls = dipc::Identity{"certificate.pem", text};
  EXPECT_EQ(dipc::Client::make(options).status(), dipc::Status::invalid_argument);
  options = {};
  options.transport = {{"tcp.keepalive", text}};
  EXPECT_EQ(dipc::Client::make(options).status(), dipc::Status::invalid_argument);
  const auto server = dipc::Server::make().value();
  EXPECT_EQ(server.stats(text).status(), dipc::Status::invalid_argument);
}

TEST(Results, TheLibraryIsOfTheHeadersVersion) {
  EXPECT_TRUE(dipc::check_version().ok());
  EXPECT_TRUE(dipc::transport_available("shm").ok());
  const auto none = dipc::transport_available("pigeons");
  EXPECT_EQ(none.status(), dipc::Status::unsupported);
  EXPECT_NE(none.error().text().find("pigeons"), std::string_view::npos);
  EXPECT_EQ(dipc::transport_available(std::string_view("shm\0x", 5)).status(),
            dipc::Status::invalid_argument);
}

}  // namespace
