#pragma once
// f32 to weight formats: what `quire quantize` writes. Scalar, without state, the same bytes on every machine.
//
// What each format does with a block, and how far decoding is from the values. A step is the distance between two
// neighbouring codes: for Q8_0 largest magnitude / 127; Q4_0, Q5_0 / 8, 16; Q4_1, Q5_1 range / 15, 31; in Q4_K, Q5_K a
// group of 32 has steps of its own, range (0 included) / 15, 31; in Q6_K a group of 16, largest magnitude / 32.
//
//   F16, BF16    rounded to nearest even.
//   Q8_0         rounded to nearest: each value within 0.51 steps.
//   Q4_0, Q5_0   scale by search (scale_search.h): root mean square within 0.71 steps; usually below 0.29, plain
//   Q4_1, Q5_1   rounding's, scale and minimum by search: the same.
//   Q4_K, Q5_K   a search in each group, then 6-bit scales and minima for d and dmin, each the best of its neighbours:
//                the same, and 1/30 of the largest range among the groups in addition.
//   Q6_K         a search for each 16, then 8-bit scales: the same with 0.13 of the largest step in addition.
//
// Scales are F16: below 2^-14 they are coarse, and below 2^-25 zero, and so are the values (quantize_test.cpp has the
// exact bounds). What is too large for an F16 scale is an error, as is a value that is not finite.
//
// Codes are chosen last, for the scales as they are stored, with the decoder's own factors. All of Q8_0 is in
// -127..127.

#include <cstddef>
#include <cstdint>
#include <span>

#include "quire/base/result.h"
#include "quire/tensor/dtype.h"

namespace quire::quant {

/// Encodes values.size() elements, a multiple of the block, into row_bytes(dtype, values.size()) bytes. On an error the
/// content of `out` means nothing; the message names the element.
Result<void> quantize(DType dtype, std::span<const float> values, std::byte* out);

}  // namespace quire::quant
