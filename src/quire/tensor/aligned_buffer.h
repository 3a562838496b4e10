#pragma once
// AlignedBuffer: zeroed memory on a 64-byte boundary, on huge pages where the kernel grants them. Owns its bytes;
// moves, does not copy.

#include <cstddef>
#include <cstdint>
#include <utility>

namespace quire {

/// When the system gives a buffer its pages: each at its first use, or all at once, which spares the first step some
/// milliseconds.
enum class Pages { when_used, at_once };

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  /// Aborts through std::bad_alloc when the system has no such memory.
  explicit AlignedBuffer(std::size_t bytes, Pages pages = Pages::when_used);
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept { return swap(other), *this; }

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  void swap(AlignedBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace quire
