#include "quire/ops/vector_ops.h"

#include "quire/base/check.h"

namespace quire::ops {

const VectorOps& vector_ops(CpuTier tier) {
  switch (tier) {
    case CpuTier::scalar:
      return kVectorOpsScalar;
    case CpuTier::avx2:
    case CpuTier::avxvnni:
      return kVectorOpsAvx2;
    case CpuTier::avx512:
    case CpuTier::avx512vnni:
      return kVectorOpsAvx512;
  }
  QUIRE_CHECK(false, "unknown tier");
}

}  // namespace quire::ops
