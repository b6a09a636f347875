// Arenas: what lies in them is lent without a copy.
#include <cstring>

#include "support.hpp"

namespace {

using support::Pair;

TEST(Arenas, BlocksAreGivenBack) {
  auto arena = dipc::Arena::make().value();
  {
    auto block = arena.alloc(1000).value();
    EXPECT_EQ(block.size(), 1000U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % 64, 0U);
    std::memset(block.data(), 1, block.size());
    EXPECT_GE(arena.stat(dipc::ArenaStat::used_bytes).value(), 1000U);
    const auto moved = std::move(block);
    EXPECT_EQ(moved.size(), 1000U);
  }
  EXPECT_EQ(arena.stat(dipc::ArenaStat::used_bytes).value(), 0U);
  void* handed_over = arena.alloc(8).value().release();
  EXPECT_GT(arena.stat(dipc::ArenaStat::used_bytes).value(), 0U);
  dipc::Arena::dealloc(handed_over);
  EXPECT_EQ(arena.stat(dipc::ArenaStat::used_bytes).value(), 0U);
}

// Promise: blocks outlive their arena.
TEST(Arenas, BlocksOutliveTheArena) {
  auto block = dipc::Arena::make().value().alloc(64).value();
  std::memset(block.data(), 1, block.size());
}

TEST(Arenas, TheBoundIsKept) {
  dipc::ArenaOptions options;
  options.region_bytes = 1U << 20;
  options.max_bytes = 1U << 20;
  const auto arena = dipc::Arena::make(options).value();
  EXPECT_EQ(arena.alloc(2U << 20).status(), dipc::Status::out_of_memory);
  const dipc::ArenaAllocator<char> allocator(arena);
  EXPECT_THROW((std::vector<char, dipc::ArenaAllocator<char>>(2U << 20, 'x', allocator)),
               std::bad_alloc);
  EXPECT_EQ(dipc::Arena::make({}, ARROW_DEVICE_VPI).status(), dipc::Status::unsupported);
}

// Promise: an arena says where it is, and one on a GPU needs a driver.
TEST(Arenas, DevicesAreNamed) {
  EXPECT_EQ(dipc::Arena::make().value().device().type, ARROW_DEVICE_CPU);
  if (support::has_driver()) GTEST_SKIP() << "this machine has a CUDA driver";
  const auto refused = dipc::Arena::make({}, dipc::Device::cuda(1));
  EXPECT_EQ(refused.status(), dipc::Status::unsupported);
  EXPECT_NE(refused.error().text().find("libcuda.so.1"), std::string::npos);
}

// Promise: vectors of an arena's allocator reach the client without a copy, and outlive the arena.
TEST(Arenas, VectorsAreLentWhereTheyLie) {
  const Pair pair;
  {
    const auto arena = dipc::Arena::make().value();
    std::vector<std::int64_t, dipc::ArenaAllocator<std::int64_t>> values(
        100000, 7, dipc::ArenaAllocator<std::int64_t>(arena));
    dipc::Columns columns;
    columns.add("n", std::move(values));
    auto schema = columns.schema();
    std::vector<dipc::DeviceArray> batches;
    batches.push_back(std::move(columns).batch().value());
    pair.server.publish("table", std::move(schema), std::move(batches)).value();
  }
  auto stream = pair.get("table").value();
  const auto schema = stream.schema().value();
  const auto batch = stream.next().value();
  const auto numbers = dipc::ColumnView<std::int64_t>::of(schema, batch, "n").value();
  ASSERT_EQ(numbers.size(), 100000U);
  for (const std::int64_t number : numbers.values()) ASSERT_EQ(number, 7);
  EXPECT_EQ(pair.server.stat(dipc::ServerStat::bytes_copied).value(), 0U);
  EXPECT_EQ(pair.server.stat(dipc::ServerStat::bytes_lent).value(), 800000U);
  EXPECT_EQ(stream.stat(dipc::StreamStat::bytes_copied).value(), 0U);
}

}  // namespace
