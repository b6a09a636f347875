// Arena: memory whose contents reach a client on the same machine without a copy.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_ARENA_HPP
#define DIPC_ARENA_HPP

#include <dipc/library.hpp>
#include <dipc/options.hpp>

#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <utility>

namespace dipc {

/// A figure of an arena.
enum class ArenaStat : std::int32_t {
  used_bytes = DIPC_ARENA_STAT_USED_BYTES,      ///< Of blocks in use.
  mapped_bytes = DIPC_ARENA_STAT_MAPPED_BYTES,  ///< Of all regions.
};

/// Gives out memory, of the host or of a CUDA device, that clients map. A client that was lent one block can read the whole region it
/// lies in, for as long as it likes: an arena is as public as its most public ticket. Every call is
/// allowed from any thread. Blocks outlive the arena.
class Arena {
 public:
  /// A block of an arena, aligned to 64 bytes; given back on destruction.
  class Block {
   public:
    Block() noexcept = default;

    [[nodiscard]] void* data() const noexcept { return data_.get(); }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// Hands the block over; the new owner gives it to Arena::dealloc().
    [[nodiscard]] void* release() noexcept {
      size_ = 0;
      return data_.release();
    }

   private:
    friend class Arena;
    Block(void* data, std::size_t size) noexcept : data_(data), size_(size) {}

    static void give_back(void* data) noexcept { dealloc(data); }

    detail::Handle<void, &Block::give_back> data_;
    std::size_t size_ = 0;
  };

  /// Makes an arena. It takes memory from the system with the first block.
  ///
  /// @param device  Where the memory lies; Status::unsupported where there is no such memory.
  static Result<Arena> make(const ArenaOptions& options = {}, Device device = {}) {
    auto version = check_version();
    if (!version) return std::move(version).error();
    auto built = detail::build(options);
    if (!built) return std::move(built).error();
    auto raw = detail::call_for<dipc_arena*>([&](dipc_arena** out, dipc_error** error) {
      return dipc_arena_new(device.type, device.id, built->get(), out, error);
    });
    if (!raw) return std::move(raw).error();
    return Arena(*raw, device);
  }

  Arena(Arena&&) noexcept = default;
  Arena& operator=(Arena&&) noexcept = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() = default;

  /// Allocates; what the block holds is not defined. On a CUDA device it is an address for the
  /// device, and is given back when work on it is done.
  ///
  /// @return Status::out_of_memory: of the system, or the bound of the options.
  Result<Block> alloc(std::size_t size_bytes) const {
    auto data = detail::call_for<void*>([&](void** out, dipc_error** error) {
      return dipc_arena_alloc(raw_.get(), size_bytes, out, error);
    });
    if (!data) return std::move(data).error();
    return Block(*data, size_bytes);
  }

  /// Gives a block of any arena back that Block::release() handed over, also when the arena is
  /// gone. NULL does nothing.
  static void dealloc(void* block) noexcept {
    // A failure means that no block begins there: the caller's mistake, and nothing has changed.
    static_cast<void>(dipc_arena_dealloc(nullptr, block, nullptr));
  }

  Result<std::uint64_t> stat(ArenaStat stat) const {
    return detail::call_for<std::uint64_t>([&](std::uint64_t* out, dipc_error** error) {
      return dipc_arena_stat(raw_.get(), static_cast<std::int32_t>(stat), out, error);
    });
  }

  /// Where the memory lies.
  [[nodiscard]] Device device() const noexcept { return device_; }

  /// The handle, which stays this object's.
  [[nodiscard]] const dipc_arena* raw() const noexcept { return raw_.get(); }

  /// The handle, kept as long as somebody needs it to allocate.
  [[nodiscard]] std::shared_ptr<const dipc_arena> share() const noexcept { return raw_; }

 private:
  Arena(dipc_arena* raw, Device device) : raw_(raw, dipc_arena_free), device_(device) {}

  std::shared_ptr<const dipc_arena> raw_;
  Device device_;
};

/// An allocator over an arena of the host: the elements of a `std::vector<T, ArenaAllocator<T>>` are
/// lent without a copy. Throws std::bad_alloc, also over an arena of a device, whose memory holds no
/// objects of C++; without exceptions it aborts.
template <class T>
class ArenaAllocator {
  static_assert(alignof(T) <= 64, "blocks of an arena are aligned to 64 bytes");

 public:
  using value_type = T;

  explicit ArenaAllocator(const Arena& arena) noexcept
      : arena_(arena.device().type == ARROW_DEVICE_CPU ? arena.share() : nullptr) {}
  template <class U>
  ArenaAllocator(const ArenaAllocator<U>& other) noexcept : arena_(other.arena()) {}

  [[nodiscard]] T* allocate(std::size_t count) {
    void* block = nullptr;
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T) ||
        dipc_arena_alloc(arena_.get(), count * sizeof(T), &block, nullptr) != DIPC_OK) {
#if DIPC_CPP_EXCEPTIONS
      throw std::bad_alloc();
#else
      std::abort();
#endif
    }
    return static_cast<T*>(block);
  }
  void deallocate(T* block, std::size_t /*count*/) noexcept { Arena::dealloc(block); }

  [[nodiscard]] const std::shared_ptr<const dipc_arena>& arena() const noexcept { return arena_; }

  template <class U>
  [[nodiscard]] bool operator==(const ArenaAllocator<U>& other) const noexcept {
    return arena_ == other.arena();
  }
  template <class U>
  [[nodiscard]] bool operator!=(const ArenaAllocator<U>& other) const noexcept {
    return !(*this == other);
  }

 private:
  std::shared_ptr<const dipc_arena> arena_;
};

}  // namespace dipc

#endif  // DIPC_ARENA_HPP
