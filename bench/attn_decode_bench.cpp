// paged attention in decode: share of the read bandwidth, order and size of blocks, KV formats, growth with the context

#include "bench/attention_sections.h"

namespace quire::bench {
namespace {

constexpr Section kSections[] = {{"bandwidth", decode_bandwidth},
                                 {"order", decode_block_order},
                                 {"block-size", decode_block_size},
                                 {"kv-type", decode_kv_type},
                                 {"growth", decode_growth}};

}  // namespace

std::span<const Section> sections() { return kSections; }

}  // namespace quire::bench
