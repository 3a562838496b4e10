#include "quire/attention/virtual_kv_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "quire/base/check.h"
#include "quire/base/checked.h"

namespace quire::attention {
namespace {

/// Processes have 47 bits of addresses; half of them are left for everything else.
constexpr std::uint64_t kMostAddresses = std::uint64_t{1} << 46;

std::size_t size_of(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

}  // namespace

std::int64_t VirtualKvStore::tile_bytes(const KvLayout& layout) {
  // Kernels load sixteen elements at a time, so the last row of the last panel may be read past its end.
  const std::int64_t padding = layout.head_dim % 16 == 0 ? 0 : 64;
  return layout.num_layers * layout.num_kv_heads * 2 * kTileTokens * layout.token_bytes() + padding;
}

VirtualKvStore::VirtualKvStore(const Options& options)
    : options_(options),
      tile_bytes_(tile_bytes(options.layout)),
      place_bytes_(round_up(ceil_div(options.context_tokens, kTileTokens) * tile_bytes_, options.group_bytes)),
      mapper_(options.mapper ? *options.mapper : system_),
      places_(size_of(options.num_places)) {
  QUIRE_CHECK(options.layout.block_size == kTileTokens && options.layout.type != KvType::int8);
  QUIRE_CHECK(options.layout.head_dim > 0 && options.layout.head_dim % 2 == 0, "head_dim ", options.layout.head_dim);
  QUIRE_CHECK(options.num_groups > 0 && options.num_places > 0 && options.context_tokens > 0);
  QUIRE_CHECK(options.group_bytes > 0 && options.group_bytes % sysconf(_SC_PAGESIZE) == 0, options.group_bytes,
              " bytes a group");
}

Result<std::unique_ptr<VirtualKvStore>> VirtualKvStore::create(const Options& options) {
  std::unique_ptr<VirtualKvStore> store(new VirtualKvStore(options));
  QUIRE_TRY_VOID(store->acquire());
  store->thread_ = std::thread([raw = store.get()] { raw->run_thread(); });
  return store;
}

Result<void> VirtualKvStore::acquire() {
  const auto addresses =
      checked_mul(static_cast<std::uint64_t>(place_bytes_), static_cast<std::uint64_t>(options_.num_places));
  if (!addresses || *addresses > kMostAddresses) {
    return fail("KV memory: ", options_.num_places, " sequences of ", place_bytes_,
                " bytes are more addresses than a process has; wanted a shorter context or fewer rows");
  }
  // Asked for more than there is, the kernel would rather kill a process than refuse.
  const std::int64_t machine_bytes = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  if (options_.num_groups > machine_bytes / options_.group_bytes) {
    return fail("KV memory: ", options_.num_groups, " page-groups of ", options_.group_bytes,
                " bytes were asked for; the machine has ", machine_bytes, " bytes");
  }
  pool_ = memfd_create("quire-kv", MFD_CLOEXEC);
  if (pool_ < 0) return fail("KV memory: no memory file: ", std::strerror(errno));
  if (ftruncate(pool_, pool_bytes()) != 0 || fallocate(pool_, 0, 0, pool_bytes()) != 0) {
    return fail("KV memory: ", pool_bytes(), " bytes cannot be had: ", std::strerror(errno));
  }
  void* view = mmap(nullptr, size_of(pool_bytes()), PROT_READ | PROT_WRITE, MAP_SHARED, pool_, 0);
  if (view == MAP_FAILED) return fail("KV memory: the pool cannot be mapped: ", std::strerror(errno));
  pool_view_ = static_cast<std::byte*>(view);
  void* base = mmap(nullptr, static_cast<std::size_t>(*addresses), PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return fail("KV memory: ", *addresses, " bytes of addresses cannot be had: ", std::strerror(errno));
  }
  base_ = static_cast<std::byte*>(base);
  return {};
}

VirtualKvStore::~VirtualKvStore() {
  {
    std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (base_) munmap(base_, size_of(place_bytes_) * places_.size());
  if (pool_view_) munmap(pool_view_, size_of(pool_bytes()));
  if (pool_ >= 0) close(pool_);
}

// -- addresses --

std::byte* VirtualKvStore::address(std::int64_t place, std::int64_t index) const {
  return base_ + place * place_bytes_ + index * options_.group_bytes;
}

const std::byte* VirtualKvStore::k_panel(std::int64_t layer, std::int64_t place, std::int64_t tile,
                                         std::int64_t head) const {
  const std::int64_t panel = layer * layout().num_kv_heads + head;
  return base_ + place * place_bytes_ + tile * tile_bytes_ + panel * 2 * layout().panel_bytes();
}
const std::byte* VirtualKvStore::v_panel(std::int64_t layer, std::int64_t place, std::int64_t tile,
                                         std::int64_t head) const {
  return k_panel(layer, place, tile, head) + layout().panel_bytes();
}
std::byte* VirtualKvStore::k_panel(std::int64_t layer, std::int64_t place, std::int64_t tile, std::int64_t head) {
  return const_cast<std::byte*>(std::as_const(*this).k_panel(layer, place, tile, head));
}
std::byte* VirtualKvStore::v_panel(std::int64_t layer, std::int64_t place, std::int64_t tile, std::int64_t head) {
  return const_cast<std::byte*>(std::as_const(*this).v_panel(layer, place, tile, head));
}

// -- mappings --

/// The tables say at once what was asked for; the thread and the kernel follow.
void VirtualKvStore::record(const GroupRange& range) {
  Place& place = places_.at(size_of(range.place));
  const auto end = size_of(range.index + range.count);
  QUIRE_CHECK(range.count > 0 && range.group >= 0 && range.group + range.count <= options_.num_groups, "group ",
              range.group);
  QUIRE_CHECK(size_of(range.index) <= place.groups.size() && range.index >= 0 &&
                  static_cast<std::int64_t>(end) * options_.group_bytes <= place_bytes_,
              "index ", range.index, " of place ", range.place, ", which has ", place.groups.size());
  if (place.groups.size() < end) {
    place.groups.resize(end);
    place.is_hole.resize(end, false);
  }
  for (std::int64_t i = 0; i < range.count; ++i) {
    place.groups[size_of(range.index + i)] = static_cast<std::int32_t>(range.group + i);
  }
}

void VirtualKvStore::set_holes(const GroupRange& range, bool is_hole) {
  Place& place = places_[size_of(range.place)];
  for (auto i = size_of(range.index); i < size_of(range.index + range.count); ++i) {
    place.num_holes += static_cast<int>(is_hole) - static_cast<int>(place.is_hole[i]);
    place.is_hole[i] = is_hole;
  }
}

bool VirtualKvStore::map_now(const GroupRange& range) {
  ++counters_.maps;
  const bool is_mapped = mapper_.map(address(range.place, range.index), size_of(range.count * options_.group_bytes),
                                     pool_, range.group * options_.group_bytes);
  counters_.refused += is_mapped ? 0 : 1;
  set_holes(range, !is_mapped);
  return is_mapped;
}

void VirtualKvStore::map(const GroupRange& range) {
  record(range);
  map_now(range);
}

void VirtualKvStore::map_ahead(const GroupRange& range) {
  record(range);
  set_holes(range, false);
  {
    std::lock_guard lock(mutex_);
    wanted_.push_back(range);
  }
  wake_.notify_one();
}

void VirtualKvStore::unmap(std::int64_t place_number, std::int64_t count) {
  Place& place = places_.at(size_of(place_number));
  const auto index = static_cast<std::int64_t>(place.groups.size()) - count;
  QUIRE_CHECK(count > 0 && index >= 0, count, " of ", place.groups.size(), " groups");
  set_holes({place_number, index, count, 0}, false);
  // If the kernel refuses even this, the old mapping stays until the next one takes its place: nobody writes there.
  mapper_.unmap(address(place_number, index), size_of(count * options_.group_bytes));
  ++counters_.unmaps;
  place.groups.resize(size_of(index));
  place.is_hole.resize(size_of(index));
}

void VirtualKvStore::copy(std::int64_t from, std::int64_t to) {
  QUIRE_CHECK(from >= 0 && from < options_.num_groups && to >= 0 && to < options_.num_groups && from != to);
  std::memcpy(pool_view_ + to * options_.group_bytes, pool_view_ + from * options_.group_bytes,
              size_of(options_.group_bytes));
  ++counters_.copied_groups;
}

std::int64_t VirtualKvStore::mapped_tokens(std::int64_t place_number) const {
  const Place& place = places_.at(size_of(place_number));
  auto count = static_cast<std::int64_t>(place.groups.size());
  if (place.num_holes > 0) {
    for (count = 0; !place.is_hole[size_of(count)]; ++count) continue;
  }
  return count * options_.group_bytes / tile_bytes_ * kTileTokens;
}

bool VirtualKvStore::ensure(std::int64_t place_number, std::int64_t num_tokens) {
  Place& place = places_.at(size_of(place_number));
  const std::int64_t needed = ceil_div(ceil_div(num_tokens, kTileTokens) * tile_bytes_, options_.group_bytes);
  for (std::int64_t i = 0; place.num_holes > 0 && i < needed; ++i) {
    if (i < static_cast<std::int64_t>(place.groups.size()) && place.is_hole[size_of(i)] &&
        !map_now({place_number, i, 1, place.groups[size_of(i)]})) {
      return false;
    }
  }
  return mapped_tokens(place_number) >= num_tokens;
}

// -- the thread --

void VirtualKvStore::run_thread() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stops_ || !wanted_.empty(); });
    if (stops_) return;
    const GroupRange range = wanted_.front();
    wanted_.pop_front();
    is_busy_ = true;
    lock.unlock();
    const bool is_mapped = mapper_.map(address(range.place, range.index), size_of(range.count * options_.group_bytes),
                                       pool_, range.group * options_.group_bytes);
    lock.lock();
    ++num_ahead_;
    if (!is_mapped) refused_.push_back(range);
    is_busy_ = false;
    if (wanted_.empty()) done_.notify_all();
  }
}

void VirtualKvStore::fence() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return wanted_.empty() && !is_busy_; });
  counters_.maps += num_ahead_;
  counters_.ahead_maps += std::exchange(num_ahead_, 0);
  counters_.refused += refused_.size();
  for (const GroupRange& range : refused_) set_holes(range, true);
  refused_.clear();
}

}  // namespace quire::attention
