#pragma once
// Where things lie inside a strip of a PackedMatrix. One layout for all tiers.
//
// Quantised formats: a strip is a row of blocks of `groups_per_block` groups of 32 columns (the last block may be
// partly unused). A block holds the quants of its groups, quant_bytes each, then scale_bytes of scales; every part
// starts on a 64-byte boundary. k4 names the four columns 4*k4 .. 4*k4 + 3 of a group, a vector is 64 bytes [16 rows][4
// columns].
//
//   quants  low four bits of the codes: 4 vectors; vector j holds k4 = j in the low nibbles, k4 = j + 4 in the high
//   ones
//           Q5_*: then 1 vector; bit j of a byte is the fifth bit of the code with k4 = j
//           Q6_K: then 2 vectors; bits 2j, 2j + 1 of vector v are the two high bits of the code with k4 = 4v + j
//           Q8_0 instead: 8 vectors of signed bytes, vector j holds k4 = j
//   scales  Q4_0, Q5_0, Q8_0: f16 d [2 groups][16 rows]
//           Q4_1, Q5_1:       f16 d [16 rows], f16 m [16 rows]
//           Q4_K, Q5_K:       f16 d [16], f16 dmin [16], then for each of 8 groups u8 scale [16], u8 min [16]
//           Q6_K:             f16 d [16], 32 bytes unused, then for each of 8 groups i8 scale [2 halves][16]
//
// Float formats: [cols][16 rows], padded to 64 bytes.
//
// kPackedLayoutVersion is raised whenever a byte of any format moves: packed matrices are also kept in files
// (model/repack_file.h). packed_matrix_test.cpp notices.
//
// Included by kernels: nothing here may emit code.

#include <cstdint>

namespace quire::quant {

inline constexpr std::uint32_t kPackedLayoutVersion = 1;

struct PackedLayout {
  int groups_per_block;
  int quant_bytes;  ///< of one group
  int scale_bytes;  ///< of one block
  constexpr int block_bytes() const { return groups_per_block * quant_bytes + scale_bytes; }
};

inline constexpr PackedLayout kLayoutQ4_0{2, 256, 64};
inline constexpr PackedLayout kLayoutQ4_1{1, 256, 64};
inline constexpr PackedLayout kLayoutQ5_0{2, 320, 64};
inline constexpr PackedLayout kLayoutQ5_1{1, 320, 64};
inline constexpr PackedLayout kLayoutQ8_0{2, 512, 64};
inline constexpr PackedLayout kLayoutQ4_K{8, 256, 320};
inline constexpr PackedLayout kLayoutQ5_K{8, 320, 320};
inline constexpr PackedLayout kLayoutQ6_K{8, 384, 320};

inline constexpr int kSubScalesAt = 64;  ///< K-quants: the sub-scales' place in the scales of a block

}  // namespace quire::quant
