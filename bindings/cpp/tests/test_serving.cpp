// Tables served and fetched, of plain C structs and of vectors.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <numeric>
#include <optional>
#include <string_view>
#include <thread>

#include "support.hpp"

namespace {

using support::Pair;
using support::Tables;
using namespace std::chrono_literals;

TEST_F(Tables, PublishedTablesAreFetchedAgainAndAgain) {
  const Pair pair;
  auto schema = support::plain_schema();
  auto batches = support::plain_batches(3, 100);
  ASSERT_TRUE(pair.server.publish("table", std::move(schema), std::move(batches)).ok());
  EXPECT_FALSE(schema);         // NOLINT(bugprone-use-after-move): what a move leaves is the promise
  EXPECT_TRUE(batches.empty());  // NOLINT(bugprone-use-after-move)
  for (int turn = 0; turn < 2; turn++) {
    auto stream = pair.get("table").value();
    table_check_schema(stream.schema().value().get());
    EXPECT_EQ(stream.device_type(), ARROW_DEVICE_CPU);
    EXPECT_EQ(support::count_rows(stream).value(), 300);
    EXPECT_EQ(stream.stat(dipc::StreamStat::rows).value(), 300U);
    EXPECT_EQ(stream.stat(dipc::StreamStat::batches).value(), 3U);
  }
  EXPECT_EQ(pair.server.stat(dipc::ServerStat::streams_served).value(), 2U);
  EXPECT_EQ(pair.client.stat(dipc::ClientStat::streams).value(), 2U);
}

// Promise of drain(): clients are led to the server that it names; if it names none, they are told
// why they get nothing. Promise of listen_fd(): clients connect through a socket that the host
// made.
TEST_F(Tables, AServerThatDrainsLeadsElsewhere) {
  const Pair drains, other;
  for (const Pair* pair : {&drains, &other}) {
    ASSERT_TRUE(pair->server.publish("table", support::plain_stream(2, 100)).ok());
    EXPECT_TRUE(pair->server.is_ready());
  }
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(other.server.listen_fd("tcp", fd).status(), dipc::Status::invalid_argument);
  ASSERT_EQ(listen(fd, 8), 0);
  EXPECT_EQ(other.server.listen_fd("tcp", fd).status(), dipc::Status::permission);
  close(fd);
  const int local = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(local, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(local, 8), 0);
  const std::string tcp = other.server.listen_fd("tcp", local).value();
  for (const std::string_view elsewhere : {std::string_view(other.uri), std::string_view(tcp)}) {
    ASSERT_TRUE(drains.server.drain(dipc::Span<const std::string_view>(&elsewhere, 1)).ok());
    EXPECT_FALSE(drains.server.is_ready());
    auto stream = drains.get("table").value();
    EXPECT_EQ(support::count_rows(stream).value(), 200);
  }
  ASSERT_TRUE(drains.server.drain().ok());
  EXPECT_EQ(drains.get("table").status(), dipc::Status::busy);
}

// Promise: with as_sent, arrays that the server has on the host stay on the host. The error for a
// missing GPU comes before the server is looked for.
TEST_F(Tables, ArraysComeToWhereTheyAreWanted) {
  const Pair pair;
  ASSERT_TRUE(pair.server.publish("table", support::plain_stream(2, 100)).ok());
  dipc::GetOptions options;
  for (const auto device : {dipc::Device(), dipc::Device::as_sent()}) {
    options.device = device;
    auto stream = pair.client.get(pair.uri, "table", options).value();
    EXPECT_EQ(stream.device_type(), ARROW_DEVICE_CPU);
    EXPECT_EQ(support::count_rows(stream).value(), 200);
    EXPECT_EQ(stream.stat(dipc::StreamStat::bytes_staged).value(), 0U);
    EXPECT_EQ(stream.stat(dipc::StreamStat::bytes_copied_on_device).value(), 0U);
  }
  options.device = dipc::Device(ARROW_DEVICE_CUDA_HOST);
  EXPECT_EQ(pair.client.get(pair.uri, "table", options).status(), dipc::Status::unsupported);
  options.device = dipc::Device::cuda(-1);
  EXPECT_EQ(pair.client.get(pair.uri, "table", options).status(), dipc::Status::invalid_argument);
  if (support::has_driver()) return;
  options.device = dipc::Device::cuda();
  const auto refused = pair.client.get("shm:@dipc-nobody-listens-here", "table", options);
  EXPECT_EQ(refused.status(), dipc::Status::unsupported);
  EXPECT_NE(refused.error().text().find("libcuda.so.1"), std::string::npos);
}

// Promise: what was refused stays the caller's.
TEST_F(Tables, ARefusedTableIsTheCallersStill) {
  const Pair pair;
  ASSERT_TRUE(pair.server.publish("table", support::plain_stream(1, 10)).ok());
  auto schema = support::plain_schema();
  auto batches = support::plain_batches(2, 10);
  const auto again = pair.server.publish("table", std::move(schema), std::move(batches));
  EXPECT_EQ(again.status(), dipc::Status::already_exists);
  // NOLINTBEGIN(bugprone-use-after-move): a failure moves nothing
  ASSERT_TRUE(schema);
  ASSERT_EQ(batches.size(), 2U);
  table_check(&batches[1]->array, 10, 10);
  // NOLINTEND(bugprone-use-after-move)
}

// Promise: figures are counted by label, and the text has them.
TEST_F(Tables, FiguresAreCounted) {
  const Pair pair;
  ASSERT_TRUE(pair.server
                  .serve("counted",
                         [](dipc::RequestRef request) {
                           EXPECT_TRUE(request.set_label("a label").ok());
                           EXPECT_EQ(request.set_label("").status(), dipc::Status::invalid_argument);
                           return support::plain_stream(4, 50);
                         })
                  .ok());
  auto stream = pair.get("counted").value();
  EXPECT_EQ(support::count_rows(stream).value(), 200);
  while (pair.server.stats().value().requests_finished == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto stats = pair.server.stats("a label").value();
  EXPECT_EQ(stats.rows_sent, 200U);
  EXPECT_EQ(stats.hand_over_ns.count, 1U);
  EXPECT_EQ(pair.server.stat(dipc::ServerStat::rows).value(), 200U);
  EXPECT_EQ(pair.server.stats("counted").status(), dipc::Status::not_found);
  const auto text = pair.server.stats_text().value();
  EXPECT_NE(text.find("dipc_rows_sent_total{ticket=\"a label\"} 200\n"), std::string::npos);
}

TEST_F(Tables, ProvidersAreCalledForEachStream) {
  const Pair pair;
  std::atomic<int> calls = 0;
  ASSERT_TRUE(pair.server
                  .serve("any ticket\0 at all",
                         [&calls](dipc::RequestRef request) {
                           calls++;
                           EXPECT_EQ(request.ticket().value(), "any ticket");
                           EXPECT_NE(request.peer().value().text.find(std::to_string(getpid())),
                                     std::string::npos);
                           EXPECT_FALSE(request.is_cancelled());
                           return support::plain_stream(4, 50);
                         })
                  .ok());
  for (int turn = 0; turn < 3; turn++) {
    auto stream = pair.get("any ticket").value();
    EXPECT_EQ(support::count_rows(stream).value(), 200);
  }
  EXPECT_EQ(calls, 3);
}

// Promise: a provider that waits for something else hears that its client has gone.
TEST_F(Tables, ProvidersCanWaitForTheirClientsToGo) {
  const Pair pair;
  std::promise<int> early;
  std::promise<int> late;
  ASSERT_TRUE(pair.server
                  .serve("waits",
                         [&](dipc::RequestRef request) {
                           pollfd gone{request.cancel_fd().value(), POLLIN, 0};
                           early.set_value(poll(&gone, 1, 0));
                           late.set_value(poll(&gone, 1, 60000));
                           EXPECT_TRUE(request.is_cancelled());
                           return support::plain_stream(1, 1);
                         })
                  .ok());
  dipc::GetOptions options;
  options.stall_timeout = 200ms;
  EXPECT_EQ(pair.client.get(pair.uri, "waits", options).status(), dipc::Status::timeout);
  EXPECT_EQ(early.get_future().get(), 0);
  EXPECT_EQ(late.get_future().get(), 1);
}

TEST_F(Tables, TicketsAreAnyBytes) {
  const Pair pair;
  const std::string_view ticket("a\0b\xff", 4);
  ASSERT_TRUE(pair.server.publish(ticket, support::plain_stream(1, 5)).ok());
  ASSERT_TRUE(pair.server.publish("", support::plain_stream(1, 6)).ok());
  ASSERT_TRUE(pair.server.publish(std::string(1000, 't'), support::plain_stream(1, 7)).ok());
  const std::vector<std::string> all = {"", std::string(ticket), std::string(1000, 't')};
  EXPECT_EQ(pair.server.tickets().value(), all);
  auto stream = pair.get(ticket).value();
  EXPECT_EQ(support::count_rows(stream).value(), 5);
  stream = pair.get({}).value();
  EXPECT_EQ(support::count_rows(stream).value(), 6);
  ASSERT_TRUE(pair.server.withdraw(ticket).ok());
  EXPECT_EQ(pair.server.tickets().value().size(), 2U);
  EXPECT_EQ(pair.server.withdraw(ticket).status(), dipc::Status::not_found);
}

// Promise: a provider is destroyed once, when its ticket is withdrawn or was refused.
TEST_F(Tables, ProvidersAreDestroyedOnce) {
  const Pair pair;
  const auto held = std::make_shared<int>(0);
  const auto provider = [held](dipc::RequestRef) { return support::plain_stream(1, 1); };
  ASSERT_TRUE(pair.server.serve("table", provider).ok());
  EXPECT_EQ(held.use_count(), 3);
  EXPECT_EQ(pair.server.serve("table", provider).status(), dipc::Status::already_exists);
  EXPECT_EQ(held.use_count(), 3);
  std::promise<void> gone;
  std::shared_ptr<void> seen(nullptr, [&gone](void*) { gone.set_value(); });
  ASSERT_TRUE(pair.server
                  .serve("other", [seen = seen](dipc::RequestRef) { return dipc::Stream(); })
                  .ok());
  EXPECT_EQ(seen.use_count(), 2);
  seen.reset();
  auto destroyed = gone.get_future();
  EXPECT_EQ(destroyed.wait_for(0s), std::future_status::timeout);
  ASSERT_TRUE(pair.server.withdraw("other").ok());
  destroyed.wait();  // on a thread of the library's
}

TEST_F(Tables, ProvidersMayReturnStreamsOfTheHost) {
  const Pair pair;
  ASSERT_TRUE(pair.server
                  .serve("table",
                         [](dipc::RequestRef) -> dipc::Result<dipc::HostStream> {
                           return support::plain_stream(2, 20).to_host();
                         })
                  .ok());
  auto stream = pair.get("table").value();
  auto host = std::move(stream).to_host().value();
  EXPECT_FALSE(stream);  // NOLINT(bugprone-use-after-move)
  table_check_schema(host.schema().value().get());
  std::int64_t rows = 0;
  for (const dipc::Array& batch : host) {
    table_check(batch.get(), rows, batch->length);
    rows += batch->length;
  }
  EXPECT_EQ(rows, 40);
}

TEST_F(Tables, GeneratedStreamsAreFetched) {
  const Pair pair;
  ASSERT_TRUE(pair.server
                  .serve("table",
                         [](dipc::RequestRef) {
                           return dipc::generate(support::plain_schema(), [left = std::int64_t{5}]() mutable {
                             if (left == 0) return dipc::DeviceArray();
                             left--;
                             return support::plain_batch((4 - left) * 30, 30);
                           });
                         })
                  .ok());
  auto stream = pair.get("table").value();
  table_check_schema(stream.schema().value().get());
  EXPECT_EQ(support::count_rows(stream).value(), 150);
}

// Promise: streams and arrays outlive the client and the server; no table is freed under them.
TEST_F(Tables, ArraysOutliveEverything) {
  std::optional<dipc::DeviceArray> batch;
  std::optional<dipc::Schema> schema;
  {
    const Pair pair;
    ASSERT_TRUE(pair.server.publish("table", support::plain_stream(1, 100000)).ok());
    auto stream = pair.get("table").value();
    ASSERT_TRUE(pair.server.withdraw("table").ok());
    schema = stream.schema().value();
    batch = stream.next().value();
  }
  table_check(&(*batch)->array, 0, 100000);
  table_check_schema(schema->get());
}

TEST_F(Tables, StreamsAreReadAndReleasedByOtherThreads) {
  const Pair pair;
  ASSERT_TRUE(pair.server.publish("table", support::plain_stream(20, 2000)).ok());
  std::vector<std::thread> threads;
  threads.reserve(4);
  std::atomic<std::int64_t> rows = 0;
  for (int reader = 0; reader < 4; reader++) {
    threads.emplace_back([&pair, &rows] {
      auto stream = pair.get("table").value();
      rows += support::count_rows(stream).value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(rows, 4 * 20 * 2000);
}

TEST_F(Tables, OptionsArrive) {
  dipc::ServerOptions options;
  options.compression = dipc::Compression::zstd;
  options.max_streams = 2;
  options.max_providers = 2;
  const Pair pair(options);
  ASSERT_TRUE(pair.server.publish("table", support::plain_stream(2, 10000)).ok());
  dipc::GetOptions get;
  get.connect_timeout = 5s;
  get.stall_timeout = dipc::forever;
  get.window = dipc::Window{1, 1U << 20};
  get.validation = dipc::Validation::full;
  auto stream = pair.client.get(pair.uri, "table", get).value();
  EXPECT_EQ(support::count_rows(stream).value(), 20000);
  EXPECT_EQ(stream.stat(dipc::StreamStat::bytes_lent).value(), 0U);
  EXPECT_GT(stream.stat(dipc::StreamStat::bytes_received).value(), 0U);

  // A setter's refusal comes out of make() and of get().
  options.max_streams = 0;
  EXPECT_EQ(dipc::Server::make(options).status(), dipc::Status::invalid_argument);
  options.max_streams = 1;
  options.max_providers = 0;
  EXPECT_EQ(dipc::Server::make(options).status(), dipc::Status::invalid_argument);
  get.window = dipc::Window{0, 0};
  EXPECT_EQ(pair.client.get(pair.uri, "table", get).status(), dipc::Status::invalid_argument);
  dipc::ClientOptions client;
  client.transport = {{"pigeons.colour", "grey"}};
  EXPECT_EQ(dipc::Client::make(client).status(), dipc::Status::invalid_argument);
}

TEST_F(Tables, ConnectionsAreKeptOrNot) {
  const Pair pair;
  ASSERT_TRUE(pair.server.publish("table", support::plain_stream(1, 10)).ok());
  dipc::ClientOptions kept;
  kept.idle_timeout = dipc::forever;
  dipc::ClientOptions none;
  none.max_idle = 0;
  for (const auto& [options, made] : {std::pair{kept, 1U}, std::pair{none, 2U}}) {
    const auto client = dipc::Client::make(options).value();
    for (int time = 0; time < 2; ++time) {
      auto stream = client.get(pair.uri, "table").value();
      EXPECT_EQ(support::count_rows(stream).value(), 10);
    }
    EXPECT_EQ(client.stat(dipc::ClientStat::connections_made).value(), made);
  }
}

TEST_F(Tables, MetadataAndDataMayTravelApart) {
  const Pair pair;
  ASSERT_TRUE(pair.server.publish("table", support::plain_stream(3, 100)).ok());
  const auto metadata = pair.server.location(dipc::Role::metadata).value();
  const auto data = pair.server.location(dipc::Role::data).value();
  EXPECT_NE(metadata, data);
  auto stream = pair.client.get_split(metadata, data, "table").value();
  EXPECT_EQ(support::count_rows(stream).value(), 300);
  EXPECT_EQ(pair.server.location().value(), pair.uri);
}

TEST(Columns, NumbersAndTextsCross) {
  const Pair pair;
  std::vector<std::int32_t> small(5);
  std::iota(small.begin(), small.end(), -2);
  dipc::Columns columns;
  columns.add("small", std::vector<std::int32_t>(small))
      .add("maybe", std::vector<double>{1, 2, 3, 4, 5}, {true, false, true, true, false})
      .add("text", std::vector<std::string>{"", "a", "", "bcd", "é"});
  auto schema = columns.schema();
  ASSERT_EQ(schema->n_children, 3);
  std::vector<dipc::DeviceArray> batches;
  batches.push_back(std::move(columns).batch().value());
  ASSERT_TRUE(pair.server.publish("table", std::move(schema), std::move(batches)).ok());

  auto stream = pair.get("table").value();
  schema = stream.schema().value();
  const auto batch = stream.next().value();
  const auto numbers = dipc::ColumnView<std::int32_t>::of(schema, batch, "small").value();
  EXPECT_EQ(std::vector<std::int32_t>(numbers.values().begin(), numbers.values().end()), small);
  const auto maybe = dipc::ColumnView<double>::of(schema, batch, "maybe").value();
  const auto texts = dipc::ColumnView<std::string_view>::of(schema, batch, "text").value();
  const std::vector<bool> valid = {true, false, true, true, false};
  const std::vector<std::string_view> expected = {"", "a", "", "bcd", "é"};
  for (std::size_t row = 0; row < 5; row++) {
    EXPECT_EQ(maybe.is_null(row), !valid[row]);
    EXPECT_FALSE(texts.is_null(row));
    EXPECT_EQ(texts[row], expected[row]);
  }
  EXPECT_EQ(maybe[3], 4.0);
  EXPECT_EQ(dipc::ColumnView<float>::of(schema, batch, "maybe").status(),
            dipc::Status::invalid_argument);
  EXPECT_EQ(dipc::ColumnView<float>::of(schema, batch, "other").status(), dipc::Status::not_found);
  EXPECT_EQ(dipc::ColumnView<float>::of({}, {}, "maybe").status(), dipc::Status::invalid_argument);
}

// Promise: texts with nulls cross, of both kinds of text, and are read with and without std::optional.
TEST(Columns, TextsWithNullsCross) {
  using Text = std::optional<std::string>;
  using View = std::optional<std::string_view>;
  const Pair pair;
  const std::string large(5'000'000, 'x');
  // More than eight rows: the bits of the nulls take two bytes.
  const std::vector<Text> texts = {"a", "", std::nullopt, large, "é", std::nullopt, "", "b", "c",
                                   std::nullopt};
  std::vector<View> views;
  for (const Text& text : texts) views.push_back(text ? View(*text) : std::nullopt);
  const std::vector<View> nothing(texts.size());
  const std::vector<std::string_view> empty(texts.size(), std::string_view());
  dipc::Columns columns;
  columns.add("texts", texts).add("views", views).add("nothing", nothing).add("empty", empty);
  columns.add("numbers", std::vector<int>(10, 7),
              {true, true, true, true, true, true, true, true, true, false});
  auto schema = columns.schema();
  std::vector<dipc::DeviceArray> batches;
  batches.push_back(std::move(columns).batch().value());
  EXPECT_EQ(batches[0]->array.children[0]->null_count, 3);
  EXPECT_EQ(batches[0]->array.children[3]->buffers[0], nullptr);
  ASSERT_TRUE(pair.server.publish("table", std::move(schema), std::move(batches)).ok());

  auto stream = pair.get("table").value();
  schema = stream.schema().value();
  auto batch = stream.next().value();
  for (const char* name : {"texts", "views"}) {
    EXPECT_EQ(dipc::ColumnView<View>::of(schema, batch, name).value().to_vector(), views);
    const auto plain = dipc::ColumnView<std::string_view>::of(schema, batch, name).value();
    for (std::size_t row = 0; row < texts.size(); row++) {
      EXPECT_EQ(plain.is_null(row), !texts[row].has_value());
      EXPECT_EQ(texts[row].has_value() ? plain[row] : "", texts[row].value_or(""));
    }
  }
  EXPECT_EQ(dipc::ColumnView<View>::of(schema, batch, "nothing").value().to_vector(), nothing);
  EXPECT_EQ(dipc::ColumnView<std::string_view>::of(schema, batch, "empty").value().to_vector(),
            empty);
  const auto numbers = dipc::ColumnView<std::optional<int>>::of(schema, batch, "numbers").value();
  EXPECT_EQ(numbers[8], 7);
  EXPECT_EQ(numbers[9], std::nullopt);
  EXPECT_EQ(dipc::ColumnView<View>::of(schema, batch, "numbers").status(),
            dipc::Status::invalid_argument);
  // Copies outlive the batch.
  const auto kept = dipc::ColumnView<Text>::of(schema, batch, "texts").value().to_vector();
  batch.reset();
  EXPECT_EQ(kept, texts);
}

TEST(Columns, NoTextsAreAColumnToo) {
  dipc::Columns columns;
  columns.add("none", std::vector<std::optional<std::string_view>>());
  const auto schema = columns.schema();
  const auto batch = std::move(columns).batch().value();
  EXPECT_TRUE(dipc::ColumnView<std::optional<std::string>>::of(schema, batch, "none")
                  .value()
                  .to_vector()
                  .empty());
}

TEST(Columns, LengthsThatDifferAreRefused) {
  dipc::Columns columns;
  columns.add("a", std::vector<int>{1, 2}).add("b", std::vector<int>{1});
  const auto batch = std::move(columns).batch();
  ASSERT_EQ(batch.status(), dipc::Status::invalid_data);
  EXPECT_EQ(batch.error().text(), "column b has 1 rows where there are 2");
  dipc::Columns nulls;
  nulls.add("c", std::vector<int>{1, 2}, {true});
  EXPECT_EQ(std::move(nulls).batch().status(), dipc::Status::invalid_data);
}

TEST(Columns, EveryNumberHasItsFormat) {
  dipc::Columns columns;
  columns.add("c", std::vector<std::int8_t>{1}).add("C", std::vector<std::uint8_t>{1});
  columns.add("s", std::vector<std::int16_t>{1}).add("S", std::vector<std::uint16_t>{1});
  columns.add("i", std::vector<std::int32_t>{1}).add("I", std::vector<std::uint32_t>{1});
  columns.add("l", std::vector<std::int64_t>{1}).add("L", std::vector<std::uint64_t>{1});
  columns.add("l", std::vector<long long>{1}).add("f", std::vector<float>{1});
  columns.add("g", std::vector<double>{1});
  const auto schema = columns.schema();
  for (std::int64_t i = 0; i < schema->n_children; i++) {
    EXPECT_STREQ(schema->children[i]->format, schema->children[i]->name);
  }
}

TEST_F(Tables, SchemasAreCopiedWithEverythingInThem) {
  std::vector<dipc::Schema> children;
  children.push_back(dipc::Schema::field("i", "index", {}, ARROW_FLAG_DICTIONARY_ORDERED,
                                         dipc::Schema::field("u", "")));
  children.push_back(support::plain_schema());
  const dipc::Metadata metadata = {{"a", "b"}};
  dipc::Schema copy;
  {
    const auto table = dipc::Schema::table(std::move(children), metadata);
    copy = table.copy();
  }
  ASSERT_EQ(copy->n_children, 2);
  EXPECT_STREQ(copy->format, "+s");
  EXPECT_EQ(dipc::decode_metadata({copy->metadata, dipc::metadata_size(copy->metadata)}), metadata);
  EXPECT_EQ(copy->children[0]->flags, ARROW_FLAG_DICTIONARY_ORDERED);
  EXPECT_STREQ(copy->children[0]->dictionary->format, "u");
  table_check_schema(copy->children[1]);
  EXPECT_FALSE(dipc::Schema().copy());
}

}  // namespace
