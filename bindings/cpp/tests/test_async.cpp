// Arrow C++'s handler of asynchronous device streams reads tables of dipc_client_get_async().
#include <arrow/api.h>
#include <arrow/c/bridge.h>
#include <arrow/util/thread_pool.h>

#include <future>
#include <memory>

#include "support.hpp"

namespace {

using support::Pair;

/// Arrow's handler, and a word of its release.
struct Handler {
  explicit Handler(std::uint64_t queue)
      : reader(arrow::CreateAsyncDeviceStreamHandler(&raw, arrow::internal::GetCpuThreadPool(),
                                                     queue)),
        release(raw.release) {
    raw.release = [](ArrowAsyncDeviceStreamHandler* self) {
      // The first member.
      auto* handler = reinterpret_cast<Handler*>(self);
      handler->release(self);
      handler->released.set_value();
    };
  }
  Handler(const Handler&) = delete;
  Handler& operator=(const Handler&) = delete;
  ~Handler() { released.get_future().wait(); }

  ArrowAsyncDeviceStreamHandler raw = {};
  arrow::Future<arrow::AsyncRecordBatchGenerator> reader;
  void (*release)(ArrowAsyncDeviceStreamHandler*);
  std::promise<void> released;
};

void start(const Pair& pair, const std::string& ticket, Handler& handler) {
  const char* uri = pair.uri.c_str();
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(ticket.data());
  ASSERT_EQ(dipc_client_get_async(pair.client.raw(), &uri, 1, bytes, ticket.size(), nullptr,
                                  &handler.raw, nullptr),
            DIPC_OK);
}

/// Reads a stream to its end; counts its rows.
arrow::Result<std::int64_t> rows(const arrow::AsyncRecordBatchGenerator& reader) {
  std::int64_t count = 0;
  for (;;) {
    const auto future = reader.generator();
    ARROW_ASSIGN_OR_RAISE(const auto next, future.result());
    if (next.batch == nullptr) return count;
    ARROW_RETURN_NOT_OK(next.batch->ValidateFull());
    const auto& ids = static_cast<const arrow::Int64Array&>(*next.batch->column(0));
    for (std::int64_t i = 0; i < ids.length(); i++) EXPECT_EQ(ids.Value(i), count + i);
    count += next.batch->num_rows();
  }
}

// Promise: Arrow C++'s handler gets schema, batches and end, with any length of its queue.
TEST(Async, ArrowReadsTables) {
  const Pair pair;
  pair.server.publish("t", support::plain_schema(), support::plain_batches(100, 10)).value();
  for (const std::uint64_t queue : {1, 5, 1000}) {
    Handler handler(queue);
    start(pair, "t", handler);
    const auto reader = handler.reader.result();
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(reader->schema->ToString(), "id: int64 not null\nname: string");
    EXPECT_EQ(reader->device_type, arrow::DeviceAllocationType::kCPU);
    const auto count = rows(*reader);
    ASSERT_TRUE(count.ok()) << count.status();
    EXPECT_EQ(*count, 1000);
  }
}

// Promise: failures reach it, before the schema and after it. At a failure Arrow's handler drops
// the tasks that it has, without extracting them; so here none comes before.
TEST(Async, ArrowHearsOfFailures) {
  const Pair pair;
  Handler unknown(5);
  start(pair, "unknown", unknown);
  const auto none = unknown.reader.result();
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find("unknown"), std::string::npos) << none.status();

  pair.server.serve("fails", [](dipc::RequestRef) { return support::plain_stream(10, 10, 0); })
      .value();
  Handler fails(5);
  start(pair, "fails", fails);
  const auto reader = fails.reader.result();
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto count = rows(*reader);
  ASSERT_FALSE(count.ok());
  EXPECT_NE(count.status().message().find("broken pipe dream"), std::string::npos)
      << count.status();
}

}  // namespace
