#pragma once
// The CPU tiers Quire has kernels for. All tiers give the same bits; a tier is a speed, never a result.

#include <string_view>

#include "quire/base/result.h"

namespace quire {

/// In rising order of preference.
enum class CpuTier { scalar, avx2, avxvnni, avx512, avx512vnni };

inline constexpr CpuTier kAllCpuTiers[] = {CpuTier::scalar, CpuTier::avx2, CpuTier::avxvnni, CpuTier::avx512,
                                           CpuTier::avx512vnni};

std::string_view to_string(CpuTier tier);

/// True if this machine (CPU and operating system) can run the tier.
bool cpu_supports(CpuTier tier);

struct CpuChoice {
  CpuTier tier;
  std::string_view why;  ///< "best of this CPU" or "forced by QUIRE_CPU"
};

/// The best tier this machine supports, or the one named by `forced` (the value of QUIRE_CPU; empty: none). An unknown
/// name or a tier that the machine lacks is an error.
Result<CpuChoice> choose_cpu_tier(std::string_view forced);

}  // namespace quire
