#include "quire/attention/attention_kernels.h"
#include "quire/attention/tile_kernels.h"
#include "quire/ops/lanes16_scalar.h"

namespace quire::attention {

const AttentionKernels kAttentionKernelsScalar = TileKernels<ops::scalar::Lanes>::table();

}  // namespace quire::attention
