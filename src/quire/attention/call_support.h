#pragma once
// What write_kv and paged_attention share.

#include "quire/attention/attention_kernels.h"
#include "quire/attention/paged_attention.h"
#include "quire/base/check.h"
#include "quire/base/cpu.h"

namespace quire::attention {

/// The kernel table of a CPU tier.
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

inline void check_covered(const SequenceChunk& chunk, const KvLayout& layout) {
  auto covered = static_cast<std::int64_t>(chunk.blocks.size()) * layout.block_size;
  QUIRE_CHECK(chunk.first_position >= 0 && chunk.first_position + chunk.num_tokens <= covered, "positions ",
              chunk.first_position, " and ", chunk.num_tokens, " on, table of ", covered);
}

}  // namespace quire::attention
