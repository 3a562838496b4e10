#include "quire/sim/prefix_replay.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <vector>

#include "quire/base/check.h"
#include "quire/base/hash.h"
#include "quire/kv/block_pool.h"

namespace quire {
namespace {

/// Names of all blocks as small numbers from 0, sessions apart.
class Names {
 public:
  std::uint32_t number_of(std::uint64_t session, std::uint64_t name) {
    return numbers_.try_emplace({session, name}, static_cast<std::uint32_t>(numbers_.size())).first->second;
  }
  std::size_t size() const { return numbers_.size(); }

 private:
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> numbers_;
};

class Cache {
 public:
  Cache(std::int32_t num_blocks, std::size_t num_names)
      : pool_(num_blocks), block_of_(num_names), name_of_(static_cast<std::size_t>(num_blocks) + 1) {}

  void serve(std::span<const std::uint32_t> names, std::int64_t block_tokens, std::int64_t prompt_tokens,
             PrefixReplay& result) {
    if (static_cast<std::int64_t>(names.size()) > pool_.num_blocks()) {
      ++result.uncached_requests;
      return;
    }
    std::size_t num_found = 0;
    while (num_found < names.size() && block_of_[names[num_found]] != kNullBlock)
      pool_.share(block_of_[names[num_found++]]);
    result.found_blocks += num_found;
    result.found_tokens +=
        static_cast<std::uint64_t>(std::min(static_cast<std::int64_t>(num_found) * block_tokens, prompt_tokens));
    for (std::size_t i = num_found; i < names.size(); ++i) {
      if (block_of_[names[i]] != kNullBlock) {  // named twice in this prompt, or behind a gap
        pool_.share(block_of_[names[i]]);
        continue;
      }
      const BlockId block = take_block(result);
      block_of_[names[i]] = block;
      name_of_[block.value] = names[i];
      pool_.set_keyed(block, true);
    }
    for (std::size_t i = names.size(); i-- > 0;) {
      const ReleaseOutcome outcome = pool_.release(block_of_[names[i]]);
      QUIRE_CHECK(outcome != ReleaseOutcome::not_held, "block of name ", names[i]);
    }
  }

 private:
  BlockId take_block(PrefixReplay& result) {
    if (pool_.num_free() == 0) {
      const BlockId oldest = pool_.oldest_idle();
      block_of_[name_of_[oldest.value]] = kNullBlock;
      pool_.set_keyed(oldest, false);
      ++result.evicted_blocks;
    }
    return pool_.allocate();
  }

  BlockPool pool_;
  std::vector<BlockId> block_of_;       ///< by name; null: not there
  std::vector<std::uint32_t> name_of_;  ///< [num_blocks + 1]
};

}  // namespace

PrefixReplay replay_prefixes(std::span<const RequestSpec> requests, std::int32_t capacity_blocks) {
  PrefixReplay result;
  Names names;
  std::vector<std::uint32_t> all;
  for (const RequestSpec& request : requests) {
    result.prompt_tokens += static_cast<std::uint64_t>(request.prompt_tokens);
    result.num_blocks += request.prefix_blocks.size();
    for (std::uint64_t name : request.prefix_blocks) all.push_back(names.number_of(request.session, name));
  }
  result.num_distinct = names.size();
  if (all.empty()) return result;
  const auto unlimited = static_cast<std::int32_t>(names.size());
  Cache cache(capacity_blocks == 0 ? unlimited : std::min(capacity_blocks, unlimited), names.size());
  std::span<const std::uint32_t> rest = all;
  for (const RequestSpec& request : requests) {
    if (request.prefix_blocks.empty()) continue;
    cache.serve(rest.first(request.prefix_blocks.size()), request.prefix_block_tokens, request.prompt_tokens, result);
    rest = rest.subspan(request.prefix_blocks.size());
  }
  return result;
}

}  // namespace quire
