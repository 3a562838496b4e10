#include "quire/sched/prefill_share.h"

#include <algorithm>
#include <numeric>

namespace quire {

std::vector<std::int32_t> share_prefill_budget(std::span<const std::int32_t> remaining, std::int32_t budget) {
  std::vector<std::int32_t> shares(remaining.size(), 0);
  if (remaining.empty()) return shares;

  std::vector<std::size_t> shorter;
  for (std::size_t i = 1; i < remaining.size(); ++i)
    if (remaining[i] < remaining[0]) shorter.push_back(i);
  std::stable_sort(shorter.begin(), shorter.end(),
                   [&](std::size_t a, std::size_t b) { return remaining[a] < remaining[b]; });
  std::int32_t offered = budget / 2;
  for (std::size_t i : shorter) {
    shares[i] = std::min(remaining[i], offered);
    offered -= shares[i];
  }

  std::int32_t left = budget - std::accumulate(shares.begin(), shares.end(), std::int32_t{0});
  for (std::size_t i = 0; i < remaining.size(); ++i) {
    const std::int32_t more = std::min(remaining[i] - shares[i], left);
    shares[i] += more;
    left -= more;
  }
  return shares;
}

}  // namespace quire
