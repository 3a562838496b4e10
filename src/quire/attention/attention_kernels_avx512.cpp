#include "quire/attention/attention_kernels.h"
#include "quire/attention/tile_kernels.h"
#include "quire/ops/lanes16_avx512.h"

namespace quire::attention {

const AttentionKernels kAttentionKernelsAvx512 = TileKernels<ops::avx512::Lanes>::table();

}  // namespace quire::attention
