#pragma once
// QuantizedRows: activations as int8 in groups of 32, the right-hand operand of quantised matrices. What a group holds
// stands in activation_group.h. A group with amax below 2^-100 is all zero. A row with a non-finite value is flagged
// and contributes nothing defined.

#include <cstddef>
#include <cstdint>

#include "quire/base/cpu.h"
#include "quire/quant/activation_group.h"
#include "quire/tensor/aligned_buffer.h"

namespace quire::quant {

/// A buffer for up to max_rows rows of up to max_cols columns (columns a multiple of 32). Rows are written and read by
/// different threads; each row by one writer.
class QuantizedRows {
 public:
  QuantizedRows(std::int64_t max_rows, std::int64_t max_cols);

  /// Sets the shape for the next product; keeps the memory.
  void reshape(std::int64_t rows, std::int64_t cols);
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }

  /// A row's first group; its group g is kRowBlock * g records further, that of the next row of the block one record.
  ActivationGroup* row(std::int64_t row) { return groups_.as<ActivationGroup>() + first_group(row); }
  const ActivationGroup* row(std::int64_t row) const { return groups_.as<ActivationGroup>() + first_group(row); }
  const ActivationGroup& group(std::int64_t row_index, std::int64_t index) const {
    return row(row_index)[index * kRowBlock];
  }
  std::size_t bytes() const { return groups_.size(); }

 private:
  std::int64_t first_group(std::int64_t row) const {
    return row / kRowBlock * kRowBlock * (cols_ / kGroup) + row % kRowBlock;
  }

  std::int64_t rows_ = 0, cols_ = 0;
  AlignedBuffer groups_;  ///< [rows / kRowBlock, cols / 32, kRowBlock]
};

/// Quantises one row x [cols] into row `row` of out. False if the row holds a non-finite value. Same bits on every
/// tier.
bool quantize_row(CpuTier tier, const float* x, std::int64_t row, QuantizedRows& out);

}  // namespace quire::quant
