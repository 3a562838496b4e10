#include "quire/ops/lanes16_avx512.h"
#include "quire/ops/vector_kernels.h"

namespace quire::ops {

const VectorOps kVectorOpsAvx512 = VectorKernels<avx512::Lanes>::table();

}  // namespace quire::ops
