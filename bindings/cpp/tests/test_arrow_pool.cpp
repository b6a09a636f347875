// ArenaPool: Arrow's buffers in an arena.
#include <dipc/arrow.hpp>

#include <arrow/api.h>

#include <cstring>

#include "support.hpp"

namespace {

using support::Pair;

std::uint64_t used(const dipc::ArenaPool& pool) {
  return pool.arena().stat(dipc::ArenaStat::used_bytes).value();
}

TEST(ArenaPool, AllocatesAndCounts) {
  const auto pool = dipc::ArenaPool::make(dipc::Arena::make().value());
  for (const std::int64_t alignment : {1, 64, 128, 4096}) {
    std::uint8_t* buffer = nullptr;
    ASSERT_TRUE(pool->Allocate(100, alignment, &buffer).ok());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer) % static_cast<std::uintptr_t>(alignment),
              0U);
    std::memset(buffer, 7, 100);
    EXPECT_EQ(pool->bytes_allocated(), 100);
    ASSERT_TRUE(pool->Reallocate(100, 5000, alignment, &buffer).ok());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer) % static_cast<std::uintptr_t>(alignment),
              0U);
    EXPECT_EQ(buffer[99], 7);
    ASSERT_TRUE(pool->Reallocate(5000, 10, alignment, &buffer).ok());
    EXPECT_EQ(buffer[9], 7);
    EXPECT_EQ(pool->bytes_allocated(), 10);
    pool->Free(buffer, 10, alignment);
    EXPECT_EQ(pool->bytes_allocated(), 0);
    EXPECT_EQ(used(*pool), 0U);
  }
  EXPECT_EQ(pool->max_memory(), 5100);
  EXPECT_EQ(pool->num_allocations(), 12);
  EXPECT_EQ(pool->total_bytes_allocated(), 4 * 5110);
  EXPECT_EQ(pool->backend_name(), "dipc");
  std::uint8_t* empty = nullptr;
  ASSERT_TRUE(pool->Allocate(0, &empty).ok());
  pool->Free(empty, 0);
}

TEST(ArenaPool, SaysWhenMemoryRunsOut) {
  dipc::ArenaOptions options;
  options.max_bytes = 1U << 20;
  options.region_bytes = 1U << 20;
  const auto pool = dipc::ArenaPool::make(dipc::Arena::make(options).value());
  std::uint8_t* buffer = nullptr;
  EXPECT_TRUE(pool->Allocate(2 << 20, &buffer).IsOutOfMemory());
  // The library's own error goes with it.
  const auto error = dipc::error_of(pool->Allocate(2 << 20, &buffer));
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->status(), dipc::Status::out_of_memory);
  EXPECT_TRUE(pool->Allocate(INT64_MAX, 4096, &buffer).IsOutOfMemory());
  EXPECT_TRUE(pool->Allocate(-1, &buffer).IsInvalid());
  EXPECT_EQ(buffer, nullptr);
  ASSERT_TRUE(pool->Allocate(100, &buffer).ok());
  std::uint8_t* kept = buffer;
  EXPECT_TRUE(pool->Reallocate(100, 2 << 20, &buffer).IsOutOfMemory());
  EXPECT_EQ(buffer, kept);
  pool->Free(buffer, 100);
}

std::shared_ptr<arrow::Table> make_table(arrow::MemoryPool* pool, int rows) {
  arrow::Int64Builder numbers(pool);
  arrow::StringBuilder texts(pool);
  for (int row = 0; row < rows; row++) {
    EXPECT_TRUE(numbers.Append(row).ok());
    EXPECT_TRUE(row % 3 == 0 ? texts.AppendNull().ok() : texts.Append("row").ok());
  }
  return arrow::Table::Make(
      arrow::schema({arrow::field("n", arrow::int64()), arrow::field("t", arrow::utf8())}),
      {numbers.Finish().ValueOrDie(), texts.Finish().ValueOrDie()});
}

// Promise: tables of the pool are lent without a copy, and may outlive every pointer to the pool.
TEST(ArenaPool, TablesAreLentAndOutliveThePool) {
  const Pair pair;
  auto pool = dipc::ArenaPool::make(dipc::Arena::make().value());
  pair.server.publish("table", make_table(pool.get(), 100000)).value();
  pair.server.serve("made", [pool](dipc::RequestRef) { return make_table(pool.get(), 100000); })
      .value();
  pool.reset();
  for (const char* ticket : {"table", "made"}) {
    const auto reader = dipc::to_reader(pair.get(ticket).value()).value();
    const auto table = reader->ToTable().ValueOrDie();
    EXPECT_TRUE(table->Equals(*make_table(arrow::default_memory_pool(), 100000)));
    EXPECT_EQ(reader->stream().stat(dipc::StreamStat::bytes_copied).value(), 0U);
  }
  EXPECT_EQ(pair.server.stat(dipc::ServerStat::bytes_copied).value(), 0U);
  EXPECT_GT(pair.server.stat(dipc::ServerStat::bytes_lent).value(), 800000U);
}

}  // namespace
