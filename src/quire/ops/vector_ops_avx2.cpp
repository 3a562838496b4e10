#include "quire/ops/lanes16_avx2.h"
#include "quire/ops/vector_kernels.h"

namespace quire::ops {

const VectorOps kVectorOpsAvx2 = VectorKernels<avx2::Lanes>::table();

}  // namespace quire::ops
