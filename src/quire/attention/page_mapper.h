#pragma once
// PageMapper: the two system calls that VirtualKvStore is made of, so that tests can have them refused.
// Thread-safety: calls for different addresses may come from different threads at once.

#include <cstddef>
#include <cstdint>

namespace quire::attention {

class PageMapper {
 public:
  virtual ~PageMapper() = default;

  /// Puts `bytes` of the pool file, from `offset` on, at `at`, in place of whatever is there, and its page table
  /// entries with it. False if the kernel has no room for one more mapping (ENOMEM); nothing has changed then.
  virtual bool map(std::byte* at, std::size_t bytes, int pool, std::int64_t offset);

  /// Takes access away again and keeps the addresses. False as for map().
  virtual bool unmap(std::byte* at, std::size_t bytes);
};

}  // namespace quire::attention
