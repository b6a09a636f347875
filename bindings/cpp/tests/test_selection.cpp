// Columns, rows and filters of a get.
#include <chrono>
#include <thread>

#include "support.hpp"

namespace {

using support::Pair;
using support::Tables;
using namespace std::chrono_literals;

/// id > 3, made by pyarrow for a schema of id: int64: bytes((pyarrow.compute.field("id") >
/// 3).to_substrait(schema)).hex().
constexpr std::string_view above_three =
    "0a5a125868747470733a2f2f6769746875622e636f6d2f7375627374726169742d696f2f737562737472"
    "6169742f626c6f622f6d61696e2f657874656e73696f6e732f66756e6374696f6e735f636f6d70617269"
    "736f6e2e79616d6c12061a041a0267741a2a0a1c1a1a1a040a021001220a1a0812060a02120022002206"
    "1a040a0238031a0a65787072657373696f6e220c0a02696412060a043a0210013a10102c2a0c41636572"
    "6f2032362e302e31";

std::string from_hex(std::string_view text) {
  std::string bytes;
  for (; !text.empty(); text.remove_prefix(2)) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(text.substr(0, 2)), nullptr, 16)));
  }
  return bytes;
}

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

  static dipc::GetOptions only_id(std::string filter) {
    dipc::GetOptions options;
    options.columns = {"id"};
    options.filter = std::move(filter);
    return options;
  }

  const std::vector<std::int64_t> expected_ = {150, 151, 152};
  Pair pair_;
};

// Promise: columns and rows are selected from a published table, a provider and a host that pushes.
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

// Promise: the error names columns that cannot be selected; without any name the table has rows and
// no columns.
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

// Promise: the rows that pass a filter come; a range counts these. A provider sees the filter.
TEST_F(Selection, RowsThatPassAFilterCome) {
  const auto filter = from_hex(above_three);
  pair_.server.publish("published", support::plain_schema(), support::plain_batches(3, 100)).value();
  pair_.server
      .set_handler([&](dipc::RequestRef request) {
        const auto seen = request.filter().value();
        const auto ticket = request.ticket().value();
        EXPECT_EQ(seen, ticket == "whole" ? std::nullopt : std::optional<std::string>(filter));
        if (ticket != "own") return support::plain_stream(3, 100);
        EXPECT_TRUE(request.take_selection().ok());
        return support::plain_stream(1, 7);
      })
      .value();
  auto options = only_id(filter);
  for (const char* ticket : {"published", "provided"}) {
    options.first_row = options.rows = std::nullopt;
    const auto found = ids(pair_.client.get(pair_.uri, ticket, options));
    ASSERT_EQ(found.size(), 296U);
    EXPECT_EQ(found.front(), 4);
    options.first_row = 146;
    options.rows = 3;
    EXPECT_EQ(ids(pair_.client.get(pair_.uri, ticket, options)), expected_);
  }
  options.columns = std::nullopt;
  auto own = pair_.client.get(pair_.uri, "own", options).value();
  EXPECT_EQ(support::count_rows(own).value(), 7);
  auto whole = pair_.get("whole").value();
  EXPECT_EQ(support::count_rows(whole).value(), 300);

  pair_.server.serve_pull("pushed").value();
  std::thread client(
      [&] { EXPECT_EQ(ids(pair_.client.get(pair_.uri, "pushed", only_id(filter))).size(), 6U); });
  auto request = pair_.server.next_request(10s).value();
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->filter().value(), filter);
  ASSERT_TRUE(request->start(support::plain_schema()).ok());
  ASSERT_TRUE(request->push(support::plain_batch(0, 10)).ok());
  EXPECT_TRUE(request->finish().ok());
  client.join();
  EXPECT_TRUE(pair_.server.drain_releases().ok());
  EXPECT_TRUE(pair_.server.withdraw("published").ok());
}

// Promise: a malformed filter, and one without bytes, are an invalid argument with a text.
TEST_F(Selection, AMalformedFilterIsRefused) {
  pair_.server.publish("t", support::plain_schema(), support::plain_batches(1, 10)).value();
  for (const char* message : {"no message", ""}) {
    const auto refused = pair_.client.get(pair_.uri, "t", only_id(message));
    ASSERT_EQ(refused.status(), dipc::Status::invalid_argument) << message;
    EXPECT_NE(refused.error().text().find("filter"), std::string_view::npos) << message;
  }
  EXPECT_TRUE(pair_.server.withdraw("t").ok());
}

}  // namespace
