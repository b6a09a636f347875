// Columns and rows of a get.
#include <chrono>
#include <thread>

#include "support.hpp"

namespace {

using support::Pair;
using support::Tables;
using namespace std::chrono_literals;

class Selection : public Tables {
 protected:
  /// The ids of a stream of that column alone.
  static std::vector<std::int64_t> ids(dipc::Result<dipc::Stream> stream) {
    std::vector<std::int64_t> found;
    EXPECT_TRUE(stream.ok());
    if (!stream.ok()) return found;
    const auto schema = stream->schema().value();
    EXPECT_EQ(schema->n_children, 1);
    EXPECT_STREQ(schema->children[0]->name, "id");
    for (;;) {
      const auto batch = stream->next().value();
      if (!batch) return found;
      const ArrowArray* column = batch->array.children[0];
      const auto* values = static_cast<const std::int64_t*>(column->buffers[1]) + column->offset;
      found.insert(found.end(), values, values + column->length);
    }
  }

  static dipc::GetOptions wanted() {
    dipc::GetOptions options;
    options.columns = {"id"};
    options.first_row = 150;
    options.rows = 3;
    return options;
  }

  const std::vector<std::int64_t> expected_ = {150, 151, 152};
  Pair pair_;
};

// Promise: a published table, a provider and a host that pushes are selected of.
TEST_F(Selection, EveryFormIsSelectedOf) {
  pair_.server.publish("published", support::plain_schema(), support::plain_batches(3, 100)).value();
  pair_.server
      .set_handler([](dipc::RequestRef request) {
        EXPECT_EQ(request.columns().value(), std::vector<std::string>{"id"});
        EXPECT_EQ(request.first_row(), 150U);
        EXPECT_EQ(request.rows(), 3U);
        return support::plain_stream(1000, 100);
      })
      .value();
  pair_.server.serve_pull("pushed").value();
  EXPECT_EQ(ids(pair_.client.get(pair_.uri, "published", wanted())), expected_);
  EXPECT_EQ(ids(pair_.client.get(pair_.uri, "provided", wanted())), expected_);
  std::thread client(
      [&] { EXPECT_EQ(ids(pair_.client.get(pair_.uri, "pushed", wanted())), expected_); });
  auto request = pair_.server.next_request(10s).value();
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->columns().value(), std::vector<std::string>{"id"});
  EXPECT_EQ(request->first_row(), 150U);
  EXPECT_EQ(request->rows(), 3U);
  ASSERT_TRUE(request->start(support::plain_schema()).ok());
  EXPECT_EQ(request->take_selection().status(), dipc::Status::invalid_argument);
  std::int64_t pushed = 0;
  for (; !request->is_complete(); pushed++) {
    ASSERT_TRUE(request->push(support::plain_batch(100 * pushed, 100)).ok());
  }
  EXPECT_EQ(pushed, 2);
  EXPECT_TRUE(request->finish().ok());
  client.join();
  EXPECT_TRUE(pair_.server.drain_releases().ok());
  EXPECT_TRUE(pair_.server.withdraw("published").ok());
}

// Promise: a provider may select by itself; without options everything is wanted.
TEST_F(Selection, AProviderMaySelectByItself) {
  pair_.server
      .set_handler([](dipc::RequestRef request) {
        if (request.columns().value().has_value()) {
          EXPECT_TRUE(request.take_selection().ok());
          return support::plain_stream(1, 7);
        }
        EXPECT_EQ(request.first_row(), 0U);
        EXPECT_EQ(request.rows(), std::nullopt);
        return support::plain_stream(2, 7);
      })
      .value();
  auto own = pair_.client.get(pair_.uri, "t", wanted()).value();
  EXPECT_EQ(support::count_rows(own).value(), 7);
  auto whole = pair_.get("t").value();
  EXPECT_EQ(support::count_rows(whole).value(), 14);
}

// Promise: columns that cannot be selected are named; no name is a table of rows alone.
TEST_F(Selection, ColumnsThatAreNotThereAreNamed) {
  pair_.server.publish("t", support::plain_schema(), support::plain_batches(1, 10)).value();
  dipc::GetOptions options;
  options.columns = {"id", "price"};
  const auto absent = pair_.client.get(pair_.uri, "t", options);
  ASSERT_EQ(absent.status(), dipc::Status::invalid_argument);
  EXPECT_NE(absent.error().text().find("\"price\"; the table has \"id\""), std::string_view::npos);
  options.columns = {"id", "id"};
  EXPECT_EQ(pair_.client.get(pair_.uri, "t", options).status(), dipc::Status::invalid_argument);
  options.columns = {std::string("i\0d", 3)};
  EXPECT_EQ(pair_.client.get(pair_.uri, "t", options).status(), dipc::Status::invalid_argument);
  options.columns = std::vector<std::string>{};
  options.rows = 4;
  auto rows = pair_.client.get(pair_.uri, "t", options).value();
  const auto batch = rows.next().value();
  EXPECT_EQ(batch->array.length, 4);
  EXPECT_EQ(batch->array.n_children, 0);
  EXPECT_TRUE(pair_.server.withdraw("t").ok());
}

}  // namespace
