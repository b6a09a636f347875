// ArenaPool: Arrow's MemoryPool over an arena. Tables built with it reach clients on the same
// machine without a copy.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_ARROW_POOL_HPP
#define DIPC_ARROW_POOL_HPP

#include <dipc/arena.hpp>
#include <dipc/arrow_status.hpp>

#include <arrow/memory_pool.h>
#include <arrow/status.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

namespace dipc {

/// Allocates Arrow's buffers in an arena of the host: over one of a device every allocation fails,
/// since Arrow writes to what a pool gives. Every call is allowed from any thread.
///
/// Buffers may outlive the last pointer to the pool: it lives until the last of them is freed.
// NOLINTNEXTLINE(cppcoreguidelines-virtual-class-destructor): it deletes itself, see drop()
class ArenaPool final : public arrow::MemoryPool {
 public:
  /// Makes a pool over an arena, which it keeps.
  [[nodiscard]] static std::shared_ptr<ArenaPool> make(Arena arena) {
    // Counted here and not by shared_ptr alone: Arrow's buffers hold a plain pointer.
    return {new ArenaPool(std::move(arena)), [](ArenaPool* pool) { pool->drop(); }};
  }

  using arrow::MemoryPool::Allocate;
  using arrow::MemoryPool::Free;
  using arrow::MemoryPool::Reallocate;

  arrow::Status Allocate(std::int64_t size, std::int64_t alignment, std::uint8_t** out) override {
    if (size < 0) return arrow::Status::Invalid("negative size of a buffer: ", size);
    if (arena_.device().type != ARROW_DEVICE_CPU) {
      return arrow::Status::NotImplemented("a pool's buffers lie on the host, and this arena does not");
    }
    const std::int64_t slack = slack_for(alignment);
    if (size > INT64_MAX - slack) return arrow::Status::OutOfMemory("buffer of ", size, " bytes");
    auto block = arena_.alloc(static_cast<std::size_t>(size + slack));
    if (!block) return to_arrow(block.error());
    auto* start = static_cast<std::uint8_t*>(block->release());
    std::uint8_t* aligned = start;
    if (slack > 0) {
      const auto to = static_cast<std::uintptr_t>(alignment);
      const auto from = reinterpret_cast<std::uintptr_t>(start);
      // At least 64 bytes on, where there is room for the block's address in front.
      aligned += (from + kArenaAlignment + to - 1) / to * to - from;
      std::memcpy(aligned - sizeof start, &start, sizeof start);
    }
    *out = aligned;
    users_.fetch_add(1, std::memory_order_relaxed);
    count(size);
    return arrow::Status::OK();
  }

  arrow::Status Reallocate(std::int64_t old_size, std::int64_t new_size, std::int64_t alignment,
                           std::uint8_t** ptr) override {
    std::uint8_t* old = *ptr;
    std::uint8_t* moved = nullptr;
    ARROW_RETURN_NOT_OK(Allocate(new_size, alignment, &moved));
    std::memcpy(moved, old, static_cast<std::size_t>(std::min(old_size, new_size)));
    Free(old, old_size, alignment);
    *ptr = moved;
    return arrow::Status::OK();
  }

  void Free(std::uint8_t* buffer, std::int64_t size, std::int64_t alignment) override {
    std::uint8_t* start = buffer;
    if (slack_for(alignment) > 0) std::memcpy(&start, buffer - sizeof start, sizeof start);
    Arena::dealloc(start);
    bytes_.fetch_sub(size, std::memory_order_relaxed);
    drop();
  }

  std::int64_t bytes_allocated() const override { return bytes_.load(std::memory_order_relaxed); }
  std::int64_t max_memory() const override { return most_.load(std::memory_order_relaxed); }
  std::int64_t total_bytes_allocated() const override {
    return total_.load(std::memory_order_relaxed);
  }
  std::int64_t num_allocations() const override {
    return allocations_.load(std::memory_order_relaxed);
  }
  std::string backend_name() const override { return "dipc"; }

  [[nodiscard]] const Arena& arena() const noexcept { return arena_; }

 private:
  /// What blocks of an arena are aligned to.
  static constexpr std::int64_t kArenaAlignment = 64;

  explicit ArenaPool(Arena arena) noexcept : arena_(std::move(arena)) {}
  ~ArenaPool() override = default;

  /// How many bytes more a block needs for an alignment that arenas do not give.
  static std::int64_t slack_for(std::int64_t alignment) noexcept {
    return alignment > kArenaAlignment ? alignment + kArenaAlignment : 0;
  }

  void count(std::int64_t size) noexcept {
    const std::int64_t now = bytes_.fetch_add(size, std::memory_order_relaxed) + size;
    std::int64_t most = most_.load(std::memory_order_relaxed);
    while (now > most && !most_.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
    }
    total_.fetch_add(size, std::memory_order_relaxed);
    allocations_.fetch_add(1, std::memory_order_relaxed);
  }

  void drop() noexcept {
    if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  Arena arena_;
  std::atomic<std::int64_t> users_{1};  // buffers, and one for all pointers to the pool
  std::atomic<std::int64_t> bytes_{0};
  std::atomic<std::int64_t> most_{0};
  std::atomic<std::int64_t> total_{0};
  std::atomic<std::int64_t> allocations_{0};
};

}  // namespace dipc

#endif  // DIPC_ARROW_POOL_HPP
