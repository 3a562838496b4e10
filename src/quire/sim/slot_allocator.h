#pragma once
// SlotAllocator: KV memory that is given out once a request, for as long as it lives: what servers did before paging,
// and what the simulator compares with. A slot holds K and V of one token.
//
//     BuddyAllocator     powers of two, split and merged (Orca; buddy_allocator.h)
//     ManagerAllocator   a KvManager of the engine, asked for the whole length (manager_allocator.h)
//
// Thread-safety: none.

#include <cstdint>
#include <optional>
#include <string>

namespace quire {

/// Memory that one request has. `id` is never reused.
struct SlotGrant {
  std::uint64_t id = 0;
  std::int64_t num_slots = 0;  ///< taken from the pool, >= what was asked for
};

class SlotAllocator {
 public:
  virtual ~SlotAllocator() = default;

  virtual std::int64_t num_slots() const = 0;       ///< of the pool
  virtual std::int64_t num_free_slots() const = 0;  ///< not granted; num_slots() - sum of grants

  /// nullopt: there is no room of that kind. num_slots >= 1.
  virtual std::optional<SlotGrant> try_allocate(std::int64_t num_slots) = 0;

  /// True if try_allocate(num_slots) succeeds once everything is released.
  virtual bool could_ever_fit(std::int64_t num_slots) const = 0;

  /// A grant of this allocator, released once.
  virtual void release(const SlotGrant& grant) = 0;

  /// The first violated invariant, or nullopt; for tests.
  virtual std::optional<std::string> validate() const = 0;
};

}  // namespace quire
