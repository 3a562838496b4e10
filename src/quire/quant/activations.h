#pragma once
// QuantizedRows: activations as int8 in groups of 32, the right-hand operand of quantised matrices. Rule 5 of the
// arithmetic: d = amax / 127, q = round-to-even(x * (1 / d)) clamped to [-127, 127], s = d * float(sum of q). A group
// with amax below 2^-100 is all zero. A row with a non-finite value is flagged and contributes nothing defined.

#include <cstddef>
#include <cstdint>
#include <span>

#include "quire/base/cpu.h"
#include "quire/tensor/aligned_buffer.h"

namespace quire::quant {

inline constexpr int kGroup = 32;

/// A buffer for up to max_rows rows of up to max_cols columns (columns a multiple of 32). Rows are written and read by
/// different threads; each row by one writer.
class QuantizedRows {
 public:
  QuantizedRows(std::int64_t max_rows, std::int64_t max_cols);

  /// Sets the shape for the next product; keeps the memory.
  void reshape(std::int64_t rows, std::int64_t cols);
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  std::size_t bytes() const { return q_.size() + d_.size() + s_.size() + sum16_.size(); }

  /// Groups from a row to the next, in all four arrays: cols / 32, or a cache line of q more where rows would fall on
  /// the same cache sets.
  std::int64_t group_stride() const { return group_stride_; }

  std::int8_t* q(std::int64_t row) { return q_.as<std::int8_t>() + row * group_stride_ * kGroup; }  ///< [cols]
  const std::int8_t* q(std::int64_t row) const { return q_.as<std::int8_t>() + row * group_stride_ * kGroup; }
  float* d(std::int64_t row) { return d_.as<float>() + row * group_stride_; }  ///< [cols / 32]
  const float* d(std::int64_t row) const { return d_.as<float>() + row * group_stride_; }
  float* s(std::int64_t row) { return s_.as<float>() + row * group_stride_; }  ///< [cols / 32]
  const float* s(std::int64_t row) const { return s_.as<float>() + row * group_stride_; }
  /// Sums of q over 16 consecutive columns, at most 16 * 127 in magnitude. [cols / 16]
  std::int16_t* sum16(std::int64_t row) { return sum16_.as<std::int16_t>() + row * group_stride_ * 2; }
  const std::int16_t* sum16(std::int64_t row) const { return sum16_.as<std::int16_t>() + row * group_stride_ * 2; }

 private:
  std::int64_t rows_ = 0, cols_ = 0, group_stride_ = 0;
  AlignedBuffer q_, d_, s_, sum16_;
};

/// Quantises one row x [cols] into row `row` of out. False if the row holds a non-finite value. Same bits on every
/// tier.
bool quantize_row(CpuTier tier, const float* x, std::int64_t row, QuantizedRows& out);

}  // namespace quire::quant
