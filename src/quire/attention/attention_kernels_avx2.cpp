#include "quire/attention/attention_kernels.h"
#include "quire/attention/tile_kernels.h"
#include "quire/ops/lanes16_avx2.h"

namespace quire::attention {

const AttentionKernels kAttentionKernelsAvx2 = TileKernels<ops::avx2::Lanes>::table();

}  // namespace quire::attention
