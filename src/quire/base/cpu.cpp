#include "quire/base/cpu.h"

namespace quire {

std::string_view to_string(CpuTier tier) {
  switch (tier) {
    case CpuTier::scalar:
      return "scalar";
    case CpuTier::avx2:
      return "avx2";
    case CpuTier::avxvnni:
      return "avxvnni";
    case CpuTier::avx512:
      return "avx512";
    case CpuTier::avx512vnni:
      return "avx512vnni";
  }
  QUIRE_CHECK(false, "unknown tier");
}

namespace {

/// AVX-VNNI has no name in g++ 12's __builtin_cpu_supports: CPUID leaf 7, subleaf 1, EAX bit 4.
bool has_avx_vnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  asm volatile("cpuid" : "=a"(eax), "=b"(ebx), "=c"(ecx), "=d"(edx) : "a"(7), "c"(0));
  if (eax < 1) return false;
  asm volatile("cpuid" : "=a"(eax), "=b"(ebx), "=c"(ecx), "=d"(edx) : "a"(7), "c"(1));
  return (eax >> 4 & 1) != 0;
}

bool has_f16c() {
  unsigned eax = 1, ebx = 0, ecx = 0, edx = 0;
  asm volatile("cpuid" : "+a"(eax), "=b"(ebx), "=c"(ecx), "=d"(edx));
  return (ecx >> 29 & 1) != 0;
}

}  // namespace

bool cpu_supports(CpuTier tier) {
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  switch (tier) {
    case CpuTier::scalar:
      return true;
    case CpuTier::avx2:
      return avx2;
    case CpuTier::avxvnni:
      return avx2 && has_avx_vnni();
    case CpuTier::avx512:
      return avx512;
    case CpuTier::avx512vnni:
      return avx512 && __builtin_cpu_supports("avx512vnni");
  }
  return false;
}

Result<CpuChoice> choose_cpu_tier(std::string_view forced) {
  std::string supported;
  CpuTier best = CpuTier::scalar;
  for (CpuTier tier : kAllCpuTiers) {
    if (!cpu_supports(tier)) continue;
    best = tier;
    supported += cat(supported.empty() ? "" : ", ", to_string(tier));
  }
  if (forced.empty()) return CpuChoice{best, "best of this CPU"};
  for (CpuTier tier : kAllCpuTiers) {
    if (to_string(tier) != forced) continue;
    if (!cpu_supports(tier)) return fail("QUIRE_CPU=", forced, ": this CPU lacks it; it supports ", supported);
    return CpuChoice{tier, "forced by QUIRE_CPU"};
  }
  return fail("QUIRE_CPU=", forced, " is not a CPU tier; wanted one of scalar, avx2, avxvnni, avx512, avx512vnni");
}

}  // namespace quire
