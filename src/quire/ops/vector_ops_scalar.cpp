#include "quire/ops/lanes16_scalar.h"
#include "quire/ops/vector_kernels.h"

namespace quire::ops {

const VectorOps kVectorOpsScalar = VectorKernels<scalar::Lanes>::table();

}  // namespace quire::ops
