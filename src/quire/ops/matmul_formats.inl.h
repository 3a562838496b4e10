// The packed formats: from memory to weights in registers. Included inside the namespace of a tier, after its dot
// header. The layout is described in quant/packed_layout.h.

struct Q4_0 {
  static constexpr quant::PackedLayout kLayout = quant::kLayoutQ4_0;
  static constexpr int kBits = 4, kOffset = 8, kHalves = 1;
  static constexpr bool kMinimum = false;
};
struct Q4_1 {
  static constexpr quant::PackedLayout kLayout = quant::kLayoutQ4_1;
  static constexpr int kBits = 4, kOffset = 0, kHalves = 1;
  static constexpr bool kMinimum = true;
};
struct Q5_0 {
  static constexpr quant::PackedLayout kLayout = quant::kLayoutQ5_0;
  static constexpr int kBits = 5, kOffset = 16, kHalves = 1;
  static constexpr bool kMinimum = false;
};
struct Q5_1 {
  static constexpr quant::PackedLayout kLayout = quant::kLayoutQ5_1;
  static constexpr int kBits = 5, kOffset = 0, kHalves = 1;
  static constexpr bool kMinimum = true;
};
struct Q8_0 {
  static constexpr quant::PackedLayout kLayout = quant::kLayoutQ8_0;
  static constexpr int kBits = 8, kOffset = 0, kHalves = 1;
  static constexpr bool kMinimum = false;
};
struct Q4_K {
  static constexpr quant::PackedLayout kLayout = quant::kLayoutQ4_K;
  static constexpr int kBits = 4, kOffset = 0, kHalves = 1;
  static constexpr bool kMinimum = true;
};
struct Q5_K {
  static constexpr quant::PackedLayout kLayout = quant::kLayoutQ5_K;
  static constexpr int kBits = 5, kOffset = 0, kHalves = 1;
  static constexpr bool kMinimum = true;
};
struct Q6_K {
  static constexpr quant::PackedLayout kLayout = quant::kLayoutQ6_K;
  static constexpr int kBits = 6, kOffset = 32, kHalves = 2;  // a scale for each 16 columns
  static constexpr bool kMinimum = false;
};

template <class Format>
inline constexpr bool kHasSubScales = Format::kLayout.groups_per_block == 8;

/// What the groups of a block of a K-quant share.
struct BlockScales {
  Floats d, negative_dmin;
};

/// One group of 32 columns of 16 rows.
template <class Format>
struct GroupWeights {
  static constexpr int kVectors = 8 / Format::kHalves;
  Weights<Format::kBits, kVectors> codes[Format::kHalves];
  Floats scale[Format::kHalves];
  Floats minimum;

  void set_codes(int k4, Bytes value) { set_weights(codes[k4 / kVectors], k4 % kVectors, value); }
};

/// Bit k4 of each byte, moved to bit 4.
template <int k4>
inline Bytes fifth_bit(Bytes high) {
  if constexpr (k4 < 4) return bytes_and(shift_left<4 - k4>(high), every_byte(0x10));
  if constexpr (k4 == 4) return bytes_and(high, every_byte(0x10));
  if constexpr (k4 > 4) return bytes_and(shift_right<k4 - 4>(high), every_byte(0x10));
}

/// Bits 2j and 2j + 1 of each byte, moved to bits 4 and 5.
template <int j>
inline Bytes high_pair(Bytes high) {
  if constexpr (j < 2) return bytes_and(shift_left<4 - 2 * j>(high), every_byte(0x30));
  if constexpr (j == 2) return bytes_and(high, every_byte(0x30));
  if constexpr (j > 2) return bytes_and(shift_right<2 * j - 4>(high), every_byte(0x30));
}

/// Columns k4 = j and j + 4, which share a vector of nibbles.
template <int j, class Format>
inline void unpack_pair(const std::uint8_t* quants, GroupWeights<Format>& out) {
  Bytes nibbles = load_bytes(quants + j * 64);
  Bytes low = bytes_and(nibbles, every_byte(15));
  Bytes high = bytes_and(shift_right<4>(nibbles), every_byte(15));
  if constexpr (Format::kBits == 5) {
    Bytes bits = load_bytes(quants + 256);
    low = bytes_or(low, fifth_bit<j>(bits));
    high = bytes_or(high, fifth_bit<j + 4>(bits));
  }
  if constexpr (Format::kBits == 6) {
    low = bytes_or(low, high_pair<j>(load_bytes(quants + 256)));
    high = bytes_or(high, high_pair<j>(load_bytes(quants + 320)));
  }
  out.set_codes(j, low);
  out.set_codes(j + 4, high);
}

template <class Format>
inline void unpack_codes(const std::uint8_t* quants, GroupWeights<Format>& out) {
  if constexpr (Format::kBits == 8) {
    for (int k4 = 0; k4 < 8; ++k4) out.set_codes(k4, load_bytes(quants + k4 * 64));
  } else {
    unpack_pair<0>(quants, out);
    unpack_pair<1>(quants, out);
    unpack_pair<2>(quants, out);
    unpack_pair<3>(quants, out);
  }
}

template <class Format>
inline BlockScales load_block_scales(const std::uint8_t* scales) {
  if constexpr (!kHasSubScales<Format>) return {zero_floats(), zero_floats()};
  return {load_f16(scales), Format::kMinimum ? negative(load_f16(scales + 32)) : zero_floats()};
}

template <class Format>
inline void load_scales(const std::uint8_t* scales, int within, const BlockScales& block, GroupWeights<Format>& out) {
  if constexpr (kHasSubScales<Format>) {
    const std::uint8_t* sub = scales + quant::kSubScalesAt + within * 32;
    if constexpr (Format::kHalves == 2) {
      out.scale[0] = multiply(block.d, load_i8(sub));
      out.scale[1] = multiply(block.d, load_i8(sub + 16));
    } else {
      out.scale[0] = multiply(block.d, load_u8(sub));
      out.minimum = multiply(block.negative_dmin, load_u8(sub + 16));
    }
  } else if constexpr (Format::kMinimum) {
    out.scale[0] = load_f16(scales);
    out.minimum = load_f16(scales + 32);
  } else {
    out.scale[0] = load_f16(scales + within * 32);
  }
}
