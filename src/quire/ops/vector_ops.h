#pragma once
// The row operations between the matrix products. Each works on one row, is called by one thread, and gives the same
// bits on every tier (float kernels are written once on a 16-lane type). Sums follow rule 8 of the arithmetic: sixteen
// virtual lanes, folded 8, 4, 2, 1. What each operation computes stands in vector_ops_table.h.

#include <cstdint>

#include "quire/base/cpu.h"
#include "quire/ops/vector_ops_table.h"

namespace quire::ops {

const VectorOps& vector_ops(CpuTier tier);

}  // namespace quire::ops
