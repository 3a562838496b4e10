#include "quire/kv/page_group_pool.h"

#include <iterator>

#include "quire/base/cat.h"
#include "quire/base/check.h"

namespace quire {

PageGroupPool::PageGroupPool(std::int32_t num_groups) : num_groups_(num_groups) {
  QUIRE_CHECK(num_groups >= 1, num_groups, " groups");
  add_run(1, num_groups);
}

void PageGroupPool::add_run(std::int32_t first, std::int32_t length) {
  if (length == 0) return;
  runs_.emplace(first, length);
  by_length_.emplace(length, first);
  num_free_ += length;
}

void PageGroupPool::remove_run(std::int32_t first) {
  const auto run = runs_.find(first);
  by_length_.erase({run->second, first});
  num_free_ -= run->second;
  runs_.erase(run);
}

/// The run that holds the group, or end.
PageGroupPool::Runs::const_iterator PageGroupPool::run_of(std::int32_t group) const {
  const auto after = runs_.upper_bound(group);
  if (after == runs_.begin()) return runs_.end();
  const auto run = std::prev(after);
  return group < run->first + run->second ? run : runs_.end();
}

bool PageGroupPool::is_free(std::int32_t group) const { return run_of(group) != runs_.end(); }

std::int32_t PageGroupPool::allocate(std::int32_t wanted) {
  QUIRE_CHECK(num_free_ > 0, "no free page-group");
  auto run = run_of(wanted);
  if (run == runs_.end()) {
    run = runs_.find(by_length_.rbegin()->second);
    // At the very start, and where only one is left, this is the first.
    wanted = run->second == num_groups_ ? run->first : run->first + run->second / 2;
  }
  const auto [first, length] = *run;
  remove_run(first);
  add_run(first, wanted - first);
  add_run(wanted + 1, first + length - wanted - 1);
  return wanted;
}

void PageGroupPool::free(std::int32_t group) {
  QUIRE_CHECK(group >= 1 && group <= num_groups_ && !is_free(group), "group ", group, " is not in use");
  std::int32_t first = group, length = 1;
  if (const auto before = run_of(group - 1); before != runs_.end()) {
    first = before->first;
    length += before->second;
    remove_run(first);
  }
  if (const auto after = runs_.find(group + 1); after != runs_.end()) {
    length += after->second;
    remove_run(group + 1);
  }
  add_run(first, length);
}

std::optional<std::string> PageGroupPool::validate() const {
  std::int32_t end = 0, sum = 0;
  for (const auto& [first, length] : runs_) {
    if (length < 1 || first <= end || first + length - 1 > num_groups_)
      return cat("pool: a run of ", length, " groups from ", first, " on, after one that ends at ", end);
    if (by_length_.count({length, first}) == 0) return cat("pool: the run at ", first, " has another length");
    end = first + length;
    sum += length;
  }
  if (sum != num_free_ || by_length_.size() != runs_.size()) return cat("pool: ", num_free_, " free, runs have ", sum);
  return std::nullopt;
}

}  // namespace quire
