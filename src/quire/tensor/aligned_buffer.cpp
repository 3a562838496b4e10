#include "quire/tensor/aligned_buffer.h"

#include <sys/mman.h>

#include <new>

namespace quire {

AlignedBuffer::AlignedBuffer(std::size_t bytes, Pages pages) : bytes_(bytes) {
  if (bytes == 0) return;
  // Anonymous mappings are zeroed and page-aligned.
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  // Hints: without them the result is only slower.
  madvise(memory, bytes, MADV_HUGEPAGE);
  if (pages == Pages::at_once) madvise(memory, bytes, MADV_POPULATE_WRITE);
  data_ = static_cast<std::byte*>(memory);
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace quire
