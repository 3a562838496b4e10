#pragma once
// What write_kv and attention share.

#include "quire/attention/attention_call.h"
#include "quire/attention/attention_kernels.h"
#include "quire/attention/kv_store.h"
#include "quire/attention/virtual_kv_store.h"
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

inline void check_mapped(const SequenceChunk& chunk, const VirtualKvStore& store) {
  QUIRE_CHECK(chunk.first_position >= 0 && chunk.first_position + chunk.num_tokens <= store.mapped_tokens(chunk.place),
              "positions ", chunk.first_position, " and ", chunk.num_tokens, " on, mapped are ",
              store.mapped_tokens(chunk.place));
}

}  // namespace quire::attention
