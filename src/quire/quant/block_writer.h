#pragma once
// Groups of codes to the bytes of a file: the inverse of read_file_group().

#include <cstddef>
#include <cstdint>

#include "quire/quant/group_codes.h"
#include "quire/tensor/dtype.h"

namespace quire::quant {

/// Writes group `group` of a row in a quantised format. Groups of one block share bytes: the block must be zero before
/// its first group is written, and each group is written once.
void write_file_group(DType dtype, const GroupCodes& codes, std::byte* row, std::int64_t group);

}  // namespace quire::quant
