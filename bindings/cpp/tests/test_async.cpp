// Arrow C++'s handler of asynchronous device streams reads tables of dipc_client_get_async().
// Its producer answers by dipc_request_answer_async().
#include <arrow/api.h>
#include <arrow/c/bridge.h>
#include <arrow/util/async_generator.h>
#include <arrow/util/thread_pool.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>

#include "support.hpp"

namespace {

using support::Pair;

/// Arrow's handler, which tells of its release.
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
// the tasks that it has, without extracting them; so here no batch comes before the failure.
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

/// Arrow's producer, on a thread of its own, answers the next request for a ticket.
class Answer {
  // The first member.
  ArrowAsyncDeviceStreamHandler raw_ = {};

 public:
  /// Gives this number of batches of ten rows, and then the end or a failure.
  Answer(const dipc::Server& server, std::int64_t batches, arrow::Status end = arrow::Status::OK())
      : thread_([this, &server, batches, end] { answer(server, batches, end); }) {}
  ~Answer() { thread_.join(); }
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  /// How it ended, once the handler is released.
  arrow::Status status() {
    released_.get_future().wait();
    return status_.get_future().get();
  }

  /// Batches that were made.
  std::atomic<std::int64_t> made = 0;

 private:
  void answer(const dipc::Server& server, std::int64_t batches, const arrow::Status& end) {
    dipc_request* request = nullptr;
    ASSERT_EQ(
        dipc_server_next_request(server.raw(), DIPC_FOREVER, nullptr, &request, nullptr), DIPC_OK);
    ASSERT_EQ(dipc_request_answer_async(request, &raw_, nullptr), DIPC_OK);
    release_ = raw_.release;
    raw_.release = [](ArrowAsyncDeviceStreamHandler* self) {
      auto* answer = reinterpret_cast<Answer*>(self);
      answer->release_(self);
      EXPECT_EQ(self->release, nullptr);
      answer->released_.set_value();
    };
    auto schema = arrow::ImportSchema(support::plain_schema().get()).ValueOrDie();
    using Batch = std::shared_ptr<arrow::RecordBatch>;
    // Each batch comes later, from another thread.
    const auto next = [this, schema, batches, end]() -> arrow::Future<Batch> {
      return arrow::DeferNotOk(arrow::internal::GetCpuThreadPool()->Submit(
          [this, schema, batches, end]() -> arrow::Result<Batch> {
            const std::int64_t number = made;
            if (number == batches) {
              ARROW_RETURN_NOT_OK(end);
              return nullptr;
            }
            made++;
            return arrow::ImportRecordBatch(&support::plain_batch(number * 10, 10).get()->array,
                                            schema);
          }));
    };
    const auto future = arrow::ExportAsyncRecordBatchReader(
        schema, next, arrow::DeviceAllocationType::kCPU, &raw_);
    status_.set_value(future.status());
  }

  void (*release_)(ArrowAsyncDeviceStreamHandler*) = nullptr;
  std::promise<void> released_;
  std::promise<arrow::Status> status_;
  std::thread thread_;
};

/// A server in the pull form.
struct Pulled : Pair {
  Pulled() { server.serve_pull("t").value(); }
};

// Promise: a table of Arrow C++'s producer reaches every client.
TEST(Async, ArrowAnswers) {
  const Pulled pair;
  for (const std::int64_t batches : {0, 1, 200}) {
    Answer answer(pair.server, batches);
    auto stream = pair.get("t").value();
    EXPECT_EQ(support::count_rows(stream).value(), batches * 10);
    EXPECT_TRUE(answer.status().ok());
  }
  // Arrow at both ends.
  Answer answer(pair.server, 100);
  Handler handler(5);
  start(pair, "t", handler);
  const auto reader = handler.reader.result();
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto count = rows(*reader);
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ(*count, 1000);
  EXPECT_TRUE(answer.status().ok());
}

// Promise: the client learns of a failure after the batches, and of one before the first batch.
TEST(Async, ArrowFails) {
  const Pulled pair;
  for (const std::int64_t batches : {0, 7}) {
    Answer answer(pair.server, batches, arrow::Status::IOError("broken pipe dream"));
    auto stream = pair.get("t").value();
    const auto read = support::count_rows(stream);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().status(), dipc::Status::provider);
    EXPECT_NE(read.error().text().find("broken pipe dream"), std::string::npos);
    EXPECT_TRUE(answer.status().IsIOError());
  }
}

// Promise: a slow client slows the producer, and one that leaves cancels it.
TEST(Async, ArrowIsCancelled) {
  const Pulled pair;
  Answer answer(pair.server, INT64_MAX);
  dipc::GetOptions options;
  options.window = dipc::Window{2, 1 << 20};
  auto stream = pair.client.get(pair.uri, "t", options).value();
  for (std::int64_t i = 1; i < 20; i++) {
    ASSERT_TRUE(stream.next().value());
    // Arrow makes a batch before it is asked for one.
    EXPECT_LE(answer.made, i + 3);
  }
  stream = dipc::Stream();
  EXPECT_TRUE(answer.status().IsCancelled()) << "not cancelled";
}

}  // namespace
