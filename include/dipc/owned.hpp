// Owners of Arrow's C structs: released on destruction, moved and never copied.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_OWNED_HPP
#define DIPC_OWNED_HPP

#include <dipc.h>

#include <utility>

namespace dipc {
namespace detail {

inline void release(ArrowSchema& owned) { owned.release(&owned); }
inline void release(ArrowArray& owned) { owned.release(&owned); }
inline void release(ArrowArrayStream& owned) { owned.release(&owned); }
inline void release(ArrowDeviceArrayStream& owned) { owned.release(&owned); }
inline void release(ArrowDeviceArray& owned) { owned.array.release(&owned.array); }

template <class T>
bool is_released(const T& owned) noexcept {
  return owned.release == nullptr;
}
inline bool is_released(const ArrowDeviceArray& owned) noexcept {
  return owned.array.release == nullptr;
}

template <class T>
void forget(T& moved) noexcept {
  moved.release = nullptr;
}
inline void forget(ArrowDeviceArray& moved) noexcept { moved.array.release = nullptr; }

/// Owns one of Arrow's C structs.
template <class T>
class Owned {
 public:
  /// Nothing: a released struct.
  Owned() noexcept = default;
  /// Moves from a struct as Arrow's C data interface says: its release becomes NULL.
  explicit Owned(T* source) noexcept : raw_(*source) { forget(*source); }

  Owned(Owned&& other) noexcept : Owned(&other.raw_) {}
  Owned& operator=(Owned&& other) noexcept {
    if (this != &other) {
      reset();
      raw_ = other.raw_;
      forget(other.raw_);
    }
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { reset(); }

  /// Whether there is something, which is to say that it is not released.
  [[nodiscard]] explicit operator bool() const noexcept { return !is_released(raw_); }

  [[nodiscard]] T* get() noexcept { return &raw_; }
  [[nodiscard]] const T* get() const noexcept { return &raw_; }
  [[nodiscard]] T* operator->() noexcept { return &raw_; }
  [[nodiscard]] const T* operator->() const noexcept { return &raw_; }
  [[nodiscard]] const T& operator*() const noexcept { return raw_; }

  /// Releases what there is, if anything.
  void reset() noexcept {
    if (!is_released(raw_)) release(raw_);
    raw_ = T{};
  }

  /// Moves into a struct, whose old content is not released.
  void move_to(T* out) noexcept {
    *out = raw_;
    forget(raw_);
  }

 private:
  T raw_{};
};

}  // namespace detail

/// An array on the host.
using Array = detail::Owned<ArrowArray>;

/// An array and the device that it lies on.
class DeviceArray : public detail::Owned<ArrowDeviceArray> {
 public:
  using Owned::Owned;

  /// An array of the host as a device array. Moves it.
  [[nodiscard]] static DeviceArray from_host(Array&& array) noexcept {
    DeviceArray device;
    array.move_to(&device->array);
    device->device_id = -1;
    device->device_type = ARROW_DEVICE_CPU;
    return device;
  }
};

}  // namespace dipc

#endif  // DIPC_OWNED_HPP
