#pragma once
// The loops behind roofline.h, for one thread and one instruction set. They do as much of one kind of work as the
// machine allows, and nothing useful. A table's entries may be those of a lesser instruction set.

#include <cstddef>
#include <cstdint>

namespace quire::bench {

inline constexpr std::size_t kReadAhead = 16384;  ///< how far ahead a loop that reads prefetches, as qgemm's kernels do

struct RooflineKernels {
  /// Reads [data, data + bytes), whole multiples of 1,024; returns some function of it.
  std::uint64_t (*read)(const std::byte* data, std::size_t bytes) = nullptr;

  /// Independent chains of a * b + c; returns a number that depends on them.
  float (*fma)(std::int64_t iterations) = nullptr;
  double fma_operations = 0;  ///< of one iteration, two for a multiplication and an addition

  /// Products of unsigned and signed bytes summed in 32 bits, as 8-bit weights need them.
  std::int32_t (*dot)(std::int64_t iterations) = nullptr;
  double dot_operations = 0;  ///< of one iteration

  /// The same with eight products summed in 16 bits first, which 4-bit weights allow. As dot where that is faster.
  std::int32_t (*dot4)(std::int64_t iterations) = nullptr;
  double dot4_operations = 0;
};

RooflineKernels roofline_scalar();
RooflineKernels roofline_avx2();
RooflineKernels roofline_avxvnni();
RooflineKernels roofline_avx512();
RooflineKernels roofline_avx512vnni();

}  // namespace quire::bench
