#include "quire/attention/page_mapper.h"

#include <sys/mman.h>

namespace quire::attention {

bool PageMapper::map(std::byte* at, std::size_t bytes, int pool, std::int64_t offset) {
  constexpr int kFlags = MAP_SHARED | MAP_FIXED | MAP_POPULATE;
  return mmap(at, bytes, PROT_READ | PROT_WRITE, kFlags, pool, offset) == at;
}

bool PageMapper::unmap(std::byte* at, std::size_t bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  return mmap(at, bytes, PROT_NONE, kFlags, -1, 0) == at;
}

}  // namespace quire::attention
