#pragma once
// VirtualKvStore: the physical KV memory of vAttention (Prabhu et al., ASPLOS 2025, arXiv 2405.04437), for CPUs. The
// K and V of a sequence are contiguous in virtual memory; physical memory is a pool of page-groups, mapped into it as
// it grows. Which group goes where is decided in kv/ (vattention_kv_manager.h); this class carries it out.
//
//     pool         one memory file (memfd) of num_groups * group_bytes, allocated when the store is made
//     addresses    one reservation without access, num_places * place_bytes; a sequence lives in one place
//     map, unmap   mmap with MAP_FIXED over a part of a place
//
// Layout. Of the two the paper has, a tensor for each of K and V of each layer, and one tensor with all layers in each
// slice (its section 6.2), this is the second: a place is a row of tiles of 64 tokens, and a tile is
// [layer][kv head]{K | V}, K as [head_dim][64], V as [64][head_dim]. The kernels see the same panels either way and
// only a larger stride between tiles; but one mapping serves all layers where the other takes 2 * layers of them, each
// with an end that is not filled: for a model of 30 layers 60 times fewer mappings, system calls and bytes lost. Groups
// and tiles need not divide one another: a tile may lie in several groups, and a group in two tiles.
//
// Formats: f32, f16, bf16, rounded as in kv_store.h. Memory starts as zero; what an unused slot holds never matters.
//
// A refused mapping is no error: the place has a hole, tried again by ensure(). Mappings wanted by later steps are made
// by a thread of the store's own, from map_ahead() on; fence() waits until it has done them.
//
// Thread-safety: one thread changes the mappings, between steps; in a step any thread reads and writes through panels
// of what ensure() said is there, as in KvStore.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "quire/attention/attention_kernels.h"
#include "quire/attention/kv_store.h"
#include "quire/attention/page_mapper.h"
#include "quire/base/result.h"

namespace quire::attention {

/// Groups [group, group + count) at the indices [index, index + count) of a place.
struct GroupRange {
  std::int64_t place = 0, index = 0, count = 0, group = 0;
};

class VirtualKvStore {
 public:
  struct Options {
    KvLayout layout;                       ///< block_size is kTileTokens, type not int8
    std::int64_t group_bytes = 256 << 10;  ///< a multiple of the system's page size
    std::int64_t num_groups = 0;
    std::int64_t num_places = 0;
    std::int64_t context_tokens = 0;  ///< longest sequence
    PageMapper* mapper = nullptr;     ///< outlives the store; null: the system's
  };
  struct Counters {
    std::uint64_t maps = 0;        ///< system calls, those of the thread included
    std::uint64_t ahead_maps = 0;  ///< of these: made by the thread
    std::uint64_t unmaps = 0;
    std::uint64_t copied_groups = 0;
    std::uint64_t refused = 0;  ///< maps that the kernel had no room for
  };

  /// Bytes of one tile, over all layers and heads; the unit that memory is counted in.
  static std::int64_t tile_bytes(const KvLayout& layout);

  /// An error says what the system refused: the memory of the pool, or the addresses.
  static Result<std::unique_ptr<VirtualKvStore>> create(const Options& options);
  ~VirtualKvStore();
  VirtualKvStore(const VirtualKvStore&) = delete;
  VirtualKvStore& operator=(const VirtualKvStore&) = delete;

  const KvLayout& layout() const { return options_.layout; }
  std::int64_t tile_bytes() const { return tile_bytes_; }
  std::int64_t pool_bytes() const { return options_.num_groups * options_.group_bytes; }

  std::byte* k_panel(std::int64_t layer, std::int64_t place, std::int64_t tile, std::int64_t head);
  std::byte* v_panel(std::int64_t layer, std::int64_t place, std::int64_t tile, std::int64_t head);
  const std::byte* k_panel(std::int64_t layer, std::int64_t place, std::int64_t tile, std::int64_t head) const;
  const std::byte* v_panel(std::int64_t layer, std::int64_t place, std::int64_t tile, std::int64_t head) const;

  /// Maps now; what is mapped there goes. index is at most what the place has.
  void map(const GroupRange& range);
  /// The same by the thread, by the next fence() at the latest. No index in it is used before that.
  void map_ahead(const GroupRange& range);
  /// Takes the last `count` groups from the place.
  void unmap(std::int64_t place, std::int64_t count);
  /// The content of group `from` goes to `to`.
  void copy(std::int64_t from, std::int64_t to);

  /// Waits for all that map_ahead was asked for. Before any of the above, once a step.
  void fence();

  /// True if the first num_tokens positions of the place can be used; holes are tried again. After a fence.
  bool ensure(std::int64_t place, std::int64_t num_tokens);
  /// Positions that can be used: whole tiles without a hole.
  std::int64_t mapped_tokens(std::int64_t place) const;

  /// After a fence.
  const Counters& counters() const { return counters_; }

 private:
  struct Place {
    std::vector<std::int32_t> groups;  ///< by index
    std::vector<bool> is_hole;         ///< by index: the kernel refused
    std::int64_t num_holes = 0;
  };

  explicit VirtualKvStore(const Options& options);
  Result<void> acquire();
  std::byte* address(std::int64_t place, std::int64_t index) const;
  bool map_now(const GroupRange& range);
  void record(const GroupRange& range);
  void set_holes(const GroupRange& range, bool is_hole);
  void run_thread();

  const Options options_;
  const std::int64_t tile_bytes_, place_bytes_;
  PageMapper system_;
  PageMapper& mapper_;
  int pool_ = -1;
  std::byte* pool_view_ = nullptr;  ///< the whole pool, for copies
  std::byte* base_ = nullptr;
  std::vector<Place> places_;
  Counters counters_;

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::deque<GroupRange> wanted_;    ///< by the thread, under the mutex, as are the following
  std::vector<GroupRange> refused_;  ///< of those
  std::uint64_t num_ahead_ = 0;
  bool is_busy_ = false, stops_ = false;
  std::thread thread_;
};

}  // namespace quire::attention
