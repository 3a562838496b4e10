#pragma once
// Which kernel table a CPU tier uses.

#include "quire/attention/attention_kernels.h"
#include "quire/base/check.h"
#include "quire/base/cpu.h"

namespace quire::attention {

inline const AttentionKernels& attention_kernels(CpuTier tier) {
  switch (tier) {
    case CpuTier::scalar:
      return kAttentionKernelsScalar;
    case CpuTier::avx2:
    case CpuTier::avxvnni:
      return kAttentionKernelsAvx2;
    case CpuTier::avx512:
    case CpuTier::avx512vnni:
      return kAttentionKernelsAvx512;
  }
  QUIRE_CHECK(false, "unknown tier");
}

}  // namespace quire::attention
