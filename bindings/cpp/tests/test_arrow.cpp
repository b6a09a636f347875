// Arrow C++: tables, readers and batches, both ways.
#include <dipc/arrow.hpp>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "support.hpp"

namespace {

using support::Pair;

struct File {
  std::shared_ptr<arrow::Schema> schema;
  arrow::RecordBatchVector batches;
};

/// A stream file; NotImplemented and the like if this Arrow cannot read it.
arrow::Result<File> read(const std::filesystem::path& path) {
  ARROW_ASSIGN_OR_RAISE(auto file, arrow::io::ReadableFile::Open(path.string()));
  ARROW_ASSIGN_OR_RAISE(auto reader, arrow::ipc::RecordBatchStreamReader::Open(file));
  File all{reader->schema(), {}};
  ARROW_ASSIGN_OR_RAISE(all.batches, reader->ToRecordBatches());
  return all;
}

/// The files of tests/vectors and, if DIPC_GOLDEN names them, of Arrow's own.
std::vector<std::filesystem::path> files() {
  std::vector<std::filesystem::path> all;
  std::vector<std::filesystem::path> folders = {DIPC_VECTORS};
  if (const char* golden = std::getenv("DIPC_GOLDEN")) {
    folders.push_back(std::filesystem::path(golden) / "streams");
  }
  for (const auto& folder : folders) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const auto ending = entry.path().extension();
      if (ending == ".arrows" || ending == ".stream") all.push_back(entry.path());
    }
  }
  return all;
}

// Promise: a client sends tables and readers of Arrow C++, and a handler reads them as such.
TEST(Arrow, EveryTypeIsTaken) {
  const Pair pair;
  std::shared_ptr<arrow::Table> taken;
  pair.server
      .set_handler([&taken](dipc::RequestRef request) {
        taken = dipc::to_table(request.source().value()).value();
        return dipc::Stream();
      })
      .value();
  int crossed = 0;
  for (const auto& path : files()) {
    SCOPED_TRACE(path.string());
    const auto file = read(path);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto expected = arrow::Table::FromRecordBatches(file->schema, file->batches).ValueOrDie();
    auto reader = arrow::RecordBatchReader::Make(file->batches, file->schema);
    auto put = pair.client.put(pair.uri, "a reader", std::move(reader));
    ASSERT_TRUE(put.ok()) << put.error().text();
    EXPECT_EQ(put->finish().value(), file->batches.size());
    EXPECT_TRUE(taken->Equals(*expected, arrow::EqualOptions().nans_equal(true)));
    crossed++;
    if (expected->num_columns() == 0) continue;
    EXPECT_TRUE(pair.client.put(pair.uri, "a table", expected).value().finish().ok());
    EXPECT_TRUE(taken->Equals(*expected, arrow::EqualOptions().nans_equal(true)));
  }
  EXPECT_GE(crossed, 30);
  const std::shared_ptr<arrow::Table> none;
  EXPECT_EQ(pair.client.put(pair.uri, "nothing", none).status(), dipc::Status::null_argument);
}

// Promise: every type crosses, with schema metadata, from Arrow C++ to Arrow C++.
TEST(Arrow, EveryTypeCrosses) {
  const Pair pair;
  int crossed = 0;
  for (const auto& path : files()) {
    SCOPED_TRACE(path.string());
    const auto file = read(path);
    ASSERT_TRUE(file.ok()) << file.status();
    const std::string ticket = path.filename().string();
    pair.server
        .serve(ticket,
               [&file](dipc::RequestRef) {
                 return arrow::RecordBatchReader::Make(file->batches, file->schema);
               })
        .value();
    const auto reader = dipc::to_reader(pair.get(ticket).value()).value();
    EXPECT_TRUE(reader->schema()->Equals(*file->schema, /*check_metadata=*/true))
        << reader->schema()->ToString(true) << "\n" << file->schema->ToString(true);
    EXPECT_EQ(reader->device_type(), arrow::DeviceAllocationType::kCPU);
    for (const auto& expected : file->batches) {
      const auto batch = reader->Next();
      ASSERT_TRUE(batch.ok()) << batch.status();
      ASSERT_NE(*batch, nullptr);
      // Golden files have decimals that their precision does not admit.
      EXPECT_EQ((*batch)->ValidateFull().ok(), expected->ValidateFull().ok());
      EXPECT_TRUE((*batch)->Equals(*expected, arrow::EqualOptions().nans_equal(true)));
    }
    EXPECT_EQ(reader->Next().ValueOrDie(), nullptr);
    pair.server.withdraw(ticket).value();
    crossed++;
  }
  EXPECT_GE(crossed, 30);
}

std::shared_ptr<arrow::RecordBatch> small_batch() {
  arrow::Int32Builder builder;
  EXPECT_TRUE(builder.AppendValues({1, 2, 3}).ok());
  return arrow::RecordBatch::Make(arrow::schema({arrow::field("n", arrow::int32())}), 3,
                                  {builder.Finish().ValueOrDie()});
}

TEST(Arrow, EverythingArrowIsAStream) {
  const auto batch = small_batch();
  const auto table = arrow::Table::FromRecordBatches({batch, batch}).ValueOrDie();
  const Pair pair;
  pair.server.publish("batch", batch).value();
  pair.server.publish("table", table).value();
  pair.server.publish("reader", arrow::RecordBatchReader::Make({batch, batch})).value();
  pair.server.serve("generated", [batch](dipc::RequestRef) {
    return dipc::generate(dipc::to_schema(*batch->schema()).value(),
                          [batch, left = 2]() mutable -> arrow::Result<
                                                            std::shared_ptr<arrow::RecordBatch>> {
                            if (left-- == 0) return nullptr;
                            return batch;
                          });
  }).value();
  EXPECT_TRUE(dipc::to_table(pair.get("batch").value()).value()->Equals(
      *arrow::Table::FromRecordBatches({batch}).ValueOrDie()));
  for (const char* ticket : {"table", "reader", "generated"}) {
    EXPECT_TRUE(dipc::to_table(pair.get(ticket).value()).value()->Equals(*table)) << ticket;
  }
  // A reader of libdipc's can be served on.
  pair.server.publish("again", dipc::to_reader(pair.get("table").value())).value();
  EXPECT_TRUE(dipc::to_table(pair.get("again").value()).value()->Equals(*table));
  EXPECT_EQ(dipc::to_stream(std::shared_ptr<arrow::Table>()).status(),
            dipc::Status::null_argument);
}

// Promise: a reader's batches have the columns of its schema, or the stream fails.
TEST(Arrow, BatchesOfOtherColumnsAreRefused) {
  const auto batch = small_batch();
  const auto renamed = batch->schema()->WithNames({"other"}).ValueOrDie();
  const auto other = arrow::RecordBatch::Make(renamed, batch->num_rows(), batch->columns());
  const Pair pair;
  pair.server.serve("changing", [=](dipc::RequestRef) {
    return arrow::RecordBatchReader::Make({batch, other}, batch->schema());
  }).value();
  const auto table = dipc::to_table(pair.get("changing").value());
  EXPECT_EQ(table.status(), dipc::Status::invalid_data);
  EXPECT_NE(table.error().text().find("column 1 is \"other\""), std::string_view::npos);
}

TEST(Arrow, BatchesGoAlone) {
  const auto batch = small_batch();
  auto array = dipc::to_array(*batch).value();
  EXPECT_EQ(array->device_type, ARROW_DEVICE_CPU);
  const auto back = dipc::to_batch(std::move(array), batch->schema()).value();
  EXPECT_TRUE(back->Equals(*batch));
  EXPECT_EQ(back->column_data(0)->buffers[1]->address(),
            batch->column_data(0)->buffers[1]->address());  // shared, not copied
}

// Promise: the custom metadata of batches comes out of ReadNext().
TEST(Arrow, MetadataOfBatchesComesOut) {
  const Pair pair;
  pair.server.serve_pull("table").value();
  std::thread producer([&pair] {
    const auto request = *pair.server.next_request().value();
    request.start(dipc::to_schema(*small_batch()->schema()).value()).value();
    request.push(dipc::to_array(*small_batch()).value(), {{"a", "1"}, {"b", "2"}}).value();
    request.push(dipc::to_array(*small_batch()).value()).value();
    request.finish().value();
  });
  const auto reader = dipc::to_reader(pair.get("table").value()).value();
  const auto first = reader->ReadNext().ValueOrDie();
  EXPECT_TRUE(first.custom_metadata->Equals(
      *arrow::key_value_metadata({{"a", "1"}, {"b", "2"}})));
  EXPECT_EQ(reader->ReadNext().ValueOrDie().custom_metadata, nullptr);
  EXPECT_EQ(reader->ReadNext().ValueOrDie().batch, nullptr);
  producer.join();
}

// Promise: the custom metadata of a reader's batches go with them, also through a second server.
TEST(Arrow, MetadataOfBatchesGoOn) {
  const Pair pair;
  auto noted = dipc::to_array(*small_batch()).value();
  dipc::set_metadata(noted, {{"b", "1"}, {"a", "2"}}).value();
  std::vector<dipc::DeviceArray> batches;
  batches.push_back(std::move(noted));
  batches.push_back(dipc::to_array(*small_batch()).value());
  pair.server
      .publish("table", dipc::to_schema(*small_batch()->schema()).value(), std::move(batches))
      .value();
  pair.server
      .serve("relayed",
             [&pair](const dipc::RequestRef&) { return dipc::to_reader(pair.get("table").value()); })
      .value();
  const auto reader = dipc::to_reader(pair.get("relayed").value()).value();
  const auto first = reader->ReadNext().ValueOrDie();
  EXPECT_TRUE(first.batch->Equals(*small_batch()));
  EXPECT_TRUE(first.custom_metadata->Equals(
      *arrow::key_value_metadata({{"b", "1"}, {"a", "2"}})));
  EXPECT_EQ(reader->ReadNext().ValueOrDie().custom_metadata, nullptr);
  EXPECT_EQ(reader->ReadNext().ValueOrDie().batch, nullptr);
}

/// A reader that fails after one batch, by a status or by throwing.
class FailingReader : public arrow::RecordBatchReader {
 public:
  explicit FailingReader(bool throws) : throws_(throws) {}
  std::shared_ptr<arrow::Schema> schema() const override { return small_batch()->schema(); }
  arrow::Status ReadNext(std::shared_ptr<arrow::RecordBatch>* out) override {
    if (!given_) {
      given_ = true;
      *out = small_batch();
      return arrow::Status::OK();
    }
    if (throws_) throw std::runtime_error("thrown on purpose");
    return arrow::Status::Invalid("failed on purpose");
  }

 private:
  bool throws_;
  bool given_ = false;
};

// Promise: failures go through Arrow and back with their status and text.
TEST(Arrow, FailuresKeepTheirStatus) {
  const Pair pair;
  for (const bool throws : {false, true}) {
    const std::string ticket = throws ? "throws" : "fails";
    pair.server.serve(ticket, [throws](dipc::RequestRef) -> std::shared_ptr<arrow::RecordBatchReader> {
      return std::make_shared<FailingReader>(throws);
    }).value();
    const auto reader = dipc::to_reader(pair.get(ticket).value()).value();
    EXPECT_NE(reader->Next().ValueOrDie(), nullptr);
    const auto failed = reader->Next();
    ASSERT_FALSE(failed.ok());
    EXPECT_NE(failed.status().message().find("on purpose"), std::string::npos);
    const auto error = dipc::error_of(failed.status());
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->status(), dipc::Status::provider);
    // A failure that is served on keeps its status and text.
    EXPECT_EQ(dipc::from_arrow(failed.status()).text(), error->text());
  }
  pair.server.serve("refused", [](dipc::RequestRef) -> arrow::Result<std::shared_ptr<arrow::Table>> {
    return dipc::to_arrow({dipc::Status::permission, "not for you"});
  }).value();
  const auto refused = pair.get("refused");
  EXPECT_EQ(refused.status(), dipc::Status::permission);
  EXPECT_NE(refused.error().text().find("not for you"), std::string_view::npos);
  EXPECT_FALSE(dipc::error_of(arrow::Status::IOError("theirs")).has_value());
  EXPECT_EQ(dipc::from_arrow(arrow::Status::Cancelled("theirs")).status(),
            dipc::Status::cancelled);
  EXPECT_TRUE(dipc::to_arrow({dipc::Status::not_found, "x"}).IsKeyError());
}

// Promise: closing a reader cancels its stream; batches that it gave live on.
TEST(Arrow, ClosedReadersSaySo) {
  const Pair pair;
  auto batch = small_batch();
  pair.server.serve("endless", [batch](dipc::RequestRef) {
    return dipc::generate(dipc::to_schema(*batch->schema()).value(), [batch] { return batch; });
  }).value();
  const auto reader = dipc::to_reader(pair.get("endless").value()).value();
  const auto kept = reader->Next().ValueOrDie();
  EXPECT_TRUE(reader->Close().ok());
  EXPECT_TRUE(reader->Next().status().IsInvalid());
  EXPECT_TRUE(kept->Equals(*batch));
  pair.server.stop(std::chrono::seconds(10)).value();
}

}  // namespace
