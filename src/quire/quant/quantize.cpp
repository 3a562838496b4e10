#include "quire/quant/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "quire/quant/block_writer.h"
#include "quire/quant/dequantize.h"
#include "quire/quant/scale_search.h"

namespace quire::quant {
namespace {

constexpr std::size_t kGroup = 32, kSuperBlock = 256;
constexpr std::uint16_t kInfinity16 = 0x7C00;

using Values = std::span<const float>;

float largest_magnitude(Values values) {
  float largest = 0;
  for (float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

std::uint16_t as_f16(double value) { return f32_to_f16(static_cast<float>(value)); }

bool is_infinite(std::uint16_t half) { return (half & 0x7FFFu) == kInfinity16; }

/// The codes of values for the scale and the minimum that the decoder will use. A scale of 0 gives the code of 0.
void choose_codes(DType dtype, Values values, GroupCodes& out) {
  const int offset = code_offset(dtype);
  const int top = dtype == DType::q8_0 ? 127 : (1 << code_bits(dtype)) - 1 - offset;
  const int bottom = dtype == DType::q8_0 ? -127 : -offset;
  const double minimum = has_minimum(dtype) ? double{group_minimum(dtype, out)} : 0;
  for (std::size_t i = 0; i < kGroup; ++i) {
    const double scale = double{group_scale(dtype, out, static_cast<int>(i / 16))};
    const int code = scale == 0 ? 0 : nearest_code((double{values[i]} - minimum) / scale, bottom, top);
    out.code[i] = static_cast<std::uint8_t>(code + offset);
  }
}

/// Formats whose block is one group of 32. False: a scale does not fit F16.
bool encode_legacy(DType dtype, Values values, std::byte* block) {
  std::array<double, kGroup> weights;
  error_weights(values, weights);
  GroupCodes codes;
  if (dtype == DType::q8_0) {
    codes.d = as_f16(double{largest_magnitude(values)} / 127);
  } else if (has_minimum(dtype)) {
    const AffineFit fit = fit_affine(values, weights, (1 << code_bits(dtype)) - 1, MinimumSign::any);
    codes.d = as_f16(fit.scale);
    codes.m = as_f16(fit.minimum);
  } else {
    codes.d = as_f16(fit_scale(values, weights, -code_offset(dtype)));
  }
  if (is_infinite(codes.d) || is_infinite(codes.m)) return false;
  choose_codes(dtype, values, codes);
  write_file_group(dtype, codes, block, 0);
  return true;
}

/// The sum of weighted squared errors of a group as decoded.
double decoded_error(DType dtype, Values values, std::span<const double> weights, const GroupCodes& codes) {
  float decoded[kGroup];
  decode_group(dtype, codes, decoded);
  double sum = 0;
  for (std::size_t i = 0; i < kGroup; ++i) {
    const double error = double{values[i]} - double{decoded[i]};
    sum += weights[i] * error * error;
  }
  return sum;
}

/// Sub-scale and sub-minimum of a Q4_K or Q5_K group, the best pair among the neighbours of the rounded ones, and
/// codes.
void choose_sub_scales(DType dtype, Values values, std::span<const double> weights, const AffineFit& fit,
                       GroupCodes& out) {
  const double d = double{f16_to_f32(out.d)}, m = double{f16_to_f32(out.m)};
  const int scale = d == 0 ? 0 : nearest_code(fit.scale / d, 0, 63);
  const int min = m == 0 ? 0 : nearest_code(-fit.minimum / m, 0, 63);
  double best_error = -1;
  GroupCodes best = out;
  for (int s = std::max(scale - 1, 0); s <= std::min(scale + 1, 63); ++s) {
    for (int n = std::max(min - 1, 0); n <= std::min(min + 1, 63); ++n) {
      GroupCodes tried = out;
      tried.scale[0] = static_cast<std::uint8_t>(s);
      tried.min = static_cast<std::uint8_t>(n);
      choose_codes(dtype, values, tried);
      const double error = decoded_error(dtype, values, weights, tried);
      if (best_error >= 0 && error >= best_error) continue;
      best_error = error;
      best = tried;
    }
  }
  out = best;
}

bool encode_k45(DType dtype, Values values, std::byte* block) {
  constexpr std::size_t kGroups = kSuperBlock / kGroup;
  std::array<double, kSuperBlock> weights;
  std::array<AffineFit, kGroups> fits;
  double max_scale = 0, max_min = 0;
  for (std::size_t g = 0; g < kGroups; ++g) {
    const std::span<double> group_weights = std::span(weights).subspan(g * kGroup, kGroup);
    const Values group = values.subspan(g * kGroup, kGroup);
    error_weights(group, group_weights);
    fits[g] = fit_affine(group, group_weights, (1 << code_bits(dtype)) - 1, MinimumSign::not_positive);
    max_scale = std::max(max_scale, fits[g].scale);
    max_min = std::max(max_min, -fits[g].minimum);
  }
  const std::uint16_t d = as_f16(max_scale / 63), m = as_f16(max_min / 63);
  if (is_infinite(d) || is_infinite(m)) return false;
  for (std::size_t g = 0; g < kGroups; ++g) {
    GroupCodes codes;
    codes.d = d;
    codes.m = m;
    choose_sub_scales(dtype, values.subspan(g * kGroup, kGroup), std::span(weights).subspan(g * kGroup, kGroup),
                      fits[g], codes);
    write_file_group(dtype, codes, block, static_cast<std::int64_t>(g));
  }
  return true;
}

bool encode_k6(Values values, std::byte* block) {
  constexpr std::size_t kSub = 16, kSubs = kSuperBlock / kSub;
  std::array<double, kSubs> scales;
  double largest = 0;
  for (std::size_t s = 0; s < kSubs; ++s) {
    std::array<double, kSub> weights;
    const Values sub = values.subspan(s * kSub, kSub);
    error_weights(sub, weights);
    scales[s] = fit_scale(sub, weights, -32);
    largest = std::max(largest, std::fabs(scales[s]));
  }
  const std::uint16_t d = as_f16(largest / 127);
  if (is_infinite(d)) return false;
  const double unit = double{f16_to_f32(d)};
  for (std::size_t g = 0; g < kSuperBlock / kGroup; ++g) {
    GroupCodes codes;
    codes.d = d;
    for (std::size_t half = 0; half < 2; ++half) {
      const int scale = unit == 0 ? 0 : nearest_code(scales[g * 2 + half] / unit, -128, 127);
      codes.scale[half] = static_cast<std::uint8_t>(static_cast<std::int8_t>(scale));
    }
    choose_codes(DType::q6_k, values.subspan(g * kGroup, kGroup), codes);
    write_file_group(DType::q6_k, codes, block, static_cast<std::int64_t>(g));
  }
  return true;
}

bool encode_block(DType dtype, Values values, std::byte* block) {
  switch (dtype) {
    case DType::q4_k:
    case DType::q5_k:
      return encode_k45(dtype, values, block);
    case DType::q6_k:
      return encode_k6(values, block);
    default:
      return encode_legacy(dtype, values, block);
  }
}

/// F16 and BF16; an error if a value would become infinite.
Result<void> round_halves(DType dtype, Values values, std::byte* out) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half = dtype == DType::f16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
    if ((half & 0x7FFFu) == (dtype == DType::f16 ? kInfinity16 : 0x7F80u)) {
      return fail("element ", i, ": found ", values[i], ", too large for ", info(dtype).name);
    }
    std::memcpy(out + i * 2, &half, 2);
  }
  return {};
}

}  // namespace

Result<void> quantize(DType dtype, Values values, std::byte* out) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return fail("element ", i, ": found ", values[i], ", wanted a finite number");
  }
  if (dtype == DType::f32) return std::memcpy(out, values.data(), values.size_bytes()), Result<void>();
  if (!is_quantized(dtype)) return round_halves(dtype, values, out);
  const DTypeInfo& format = info(dtype);
  const std::size_t block = format.block_elements;
  std::memset(out, 0, static_cast<std::size_t>(row_bytes(dtype, static_cast<std::int64_t>(values.size()))));
  for (std::size_t at = 0; at < values.size(); at += block) {
    const Values part = values.subspan(at, block);
    if (!encode_block(dtype, part, out + at / block * format.block_bytes)) {
      return fail("elements ", at, " to ", at + block - 1, ": found a magnitude of ", largest_magnitude(part),
                  ", too large for ", format.name, ", whose scales are F16");
    }
  }
  return {};
}

}  // namespace quire::quant
