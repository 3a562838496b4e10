// The matrix product kernels, written once for every tier. Included inside the namespace of a tier, after the formats
// and the tier's
//   constexpr int kMaxTokens, kMaxFloatTokens   tokens that share one unpacking of the weights (a power of two)
//
// A tile is kStrips strips times kTokens tokens with its sums in registers. One or two tokens take several strips at
// once, so that the chains along K overlap.

inline void prefetch(const std::uint8_t* p, int bytes) {
  for (int at = 0; at < bytes; at += 64) __builtin_prefetch(p + at);
}

inline constexpr int kPrefetchAhead = 2048;

/// Sums of a tile as [strip][token], to the output, with the bias; rows past the matrix are dropped.
template <int kStrips, int kTokens>
inline void store_tile(const MatmulTask& task, std::int64_t strip, std::int64_t token,
                       const Floats (&sums)[kStrips][kTokens]) {
  for (int r = 0; r < kStrips; ++r) {
    std::int64_t row = (strip + r) * 16;
    std::int64_t rows = task.num_rows - row;
    float bias[16] = {};
    for (int i = 0; task.bias != nullptr && i < 16 && i < rows; ++i) bias[i] = task.bias[row + i];
    for (int t = 0; t < kTokens; ++t) {
      Floats sum = task.bias != nullptr ? add(sums[r][t], load_floats(bias)) : sums[r][t];
      float* out = task.out + (token + t) * task.out_stride + row;
      if (rows >= 16) {
        store_floats(out, sum);
      } else {
        float lanes[16];
        store_floats(lanes, sum);
        for (int i = 0; i < rows; ++i) out[i] = lanes[i];
      }
    }
  }
}

/// Both halves of a dword hold -offset, or the half that is not wanted holds 0.
constexpr int offset_pair(int offset, bool first, bool second) {
  unsigned word = static_cast<unsigned>(-offset) & 0xFFFF;
  return static_cast<int>((first ? word : 0) | (second ? word << 16 : 0));
}

/// The integer dot product of half `half` of a group (of the whole group where the format has no halves).
template <class Format>
inline Ints group_dot(const GroupWeights<Format>& weights, int half, const std::int8_t* q, const std::int16_t* sum16) {
  constexpr int kOffset = Format::kOffset + kDotOffset<Format::kBits>;
  constexpr bool kWhole = Format::kHalves == 1;
  Ints start = zero_ints();
  if constexpr (kOffset != 0) {
    int factors = kWhole      ? offset_pair(kOffset, true, true)
                  : half == 0 ? offset_pair(kOffset, true, false)
                              : offset_pair(kOffset, false, true);
    start = multiply_shorts(broadcast4(sum16), every_int(factors));
  }
  return dot(weights.codes[half], q + half * 16, start);
}

template <class Format>
inline Floats add_group(const GroupWeights<Format>& weights, const MatmulTask& task, std::int64_t at, Floats sum) {
  Floats d = every_float(task.d[at]);
  for (int half = 0; half < Format::kHalves; ++half) {
    Ints product = group_dot(weights, half, task.q + at * 32, task.sum16 + at * 2);
    sum = fused(to_floats(product), multiply(weights.scale[half], d), sum);
  }
  return Format::kMinimum ? fused(weights.minimum, every_float(task.s[at]), sum) : sum;
}

template <class Format, int kStrips, int kTokens>
void quantized_tile(const MatmulTask& task, std::int64_t strip, std::int64_t token) {
  constexpr quant::PackedLayout kLayout = Format::kLayout;
  constexpr int kQuantBytesOfBlock = kLayout.groups_per_block * kLayout.quant_bytes;
  std::int64_t groups = task.cols / 32;
  const std::uint8_t* block = reinterpret_cast<const std::uint8_t*>(task.strips) + strip * task.strip_bytes;
  Floats sums[kStrips][kTokens];
  for (auto& row : sums) {
    for (auto& sum : row) sum = zero_floats();
  }
  for (std::int64_t first = 0; first < groups; first += kLayout.groups_per_block, block += kLayout.block_bytes()) {
    BlockScales block_scales[kStrips];
    for (int r = 0; r < kStrips; ++r) {
      const std::uint8_t* scales = block + r * task.strip_bytes + kQuantBytesOfBlock;
      block_scales[r] = load_block_scales<Format>(scales);
      if (kTokens <= 8) prefetch(scales + kPrefetchAhead, kLayout.scale_bytes);
    }
    for (int within = 0; within < kLayout.groups_per_block && first + within < groups; ++within) {
      for (int r = 0; r < kStrips; ++r) {
        const std::uint8_t* quants = block + r * task.strip_bytes + within * kLayout.quant_bytes;
        GroupWeights<Format> weights;
        unpack_codes(quants, weights);
        load_scales(block + r * task.strip_bytes + kQuantBytesOfBlock, within, block_scales[r], weights);
        if (kTokens <= 8) prefetch(quants + kPrefetchAhead, kLayout.quant_bytes);
        for (int t = 0; t < kTokens; ++t) {
          sums[r][t] = add_group(weights, task, (token + t) * groups + first + within, sums[r][t]);
        }
      }
    }
  }
  store_tile(task, strip, token, sums);
}

struct F32 {
  static constexpr int kBytes = 64;
  static Floats load(const std::uint8_t* p) { return load_floats(reinterpret_cast<const float*>(p)); }
};
struct F16 {
  static constexpr int kBytes = 32;
  static Floats load(const std::uint8_t* p) { return load_f16(p); }
};
struct BF16 {
  static constexpr int kBytes = 32;
  static Floats load(const std::uint8_t* p) { return load_bf16(p); }
};

template <class Format, int kStrips, int kTokens>
void float_tile(const MatmulTask& task, std::int64_t strip, std::int64_t token) {
  const std::uint8_t* column = reinterpret_cast<const std::uint8_t*>(task.strips) + strip * task.strip_bytes;
  const float* x = task.x + token * task.x_stride;
  Floats sums[kStrips][kTokens];
  for (auto& row : sums) {
    for (auto& sum : row) sum = zero_floats();
  }
  for (std::int64_t k = 0; k < task.cols; ++k, column += Format::kBytes) {
    for (int r = 0; r < kStrips; ++r) {
      const std::uint8_t* at = column + r * task.strip_bytes;
      Floats weights = Format::load(at);
      if (kTokens <= 4) __builtin_prefetch(at + kPrefetchAhead);
      for (int t = 0; t < kTokens; ++t) {
        sums[r][t] = fused(weights, every_float(x[t * task.x_stride + k]), sums[r][t]);
      }
    }
  }
  store_tile(task, strip, token, sums);
}

/// Which kernel computes a tile: quantized_tile or float_tile.
template <class Format>
struct QuantizedTile {
  static constexpr int kMaxTileTokens = kMaxTokens;
  template <int kStrips, int kTokens>
  static void run(const MatmulTask& task, std::int64_t strip, std::int64_t token) {
    quantized_tile<Format, kStrips, kTokens>(task, strip, token);
  }
};
template <class Format>
struct FloatTile {
  static constexpr int kMaxTileTokens = kMaxFloatTokens;
  template <int kStrips, int kTokens>
  static void run(const MatmulTask& task, std::int64_t strip, std::int64_t token) {
    float_tile<Format, kStrips, kTokens>(task, strip, token);
  }
};

/// Covers tokens [token, num_tokens) of kStrips strips with tiles of kTokens tokens, then of half as many, and so on.
template <class Tile, int kStrips, int kTokens>
void cover_tokens(const MatmulTask& task, std::int64_t strip, std::int64_t token) {
  for (; token + kTokens <= task.num_tokens; token += kTokens) {
    Tile::template run<kStrips, kTokens>(task, strip, token);
  }
  if constexpr (kTokens > 1) cover_tokens<Tile, kStrips, kTokens / 2>(task, strip, token);
}

template <class Tile>
void cover(const MatmulTask& task) {
  constexpr int kStripsForOneToken = 4, kStripsForTwoTokens = 2;
  std::int64_t strip = 0;
  if (task.num_tokens == 1) {
    for (; strip + kStripsForOneToken <= task.num_strips; strip += kStripsForOneToken) {
      Tile::template run<kStripsForOneToken, 1>(task, strip, 0);
    }
  } else if (task.num_tokens == 2) {
    for (; strip + kStripsForTwoTokens <= task.num_strips; strip += kStripsForTwoTokens) {
      Tile::template run<kStripsForTwoTokens, 2>(task, strip, 0);
    }
  }
  for (; strip < task.num_strips; ++strip) cover_tokens<Tile, 1, Tile::kMaxTileTokens>(task, strip, 0);
}

inline constexpr MatmulKernels kKernels = {
    cover<FloatTile<F32>>,      cover<FloatTile<F16>>,      cover<FloatTile<BF16>>,     cover<QuantizedTile<Q4_0>>,
    cover<QuantizedTile<Q4_1>>, cover<QuantizedTile<Q5_0>>, cover<QuantizedTile<Q5_1>>, cover<QuantizedTile<Q8_0>>,
    cover<QuantizedTile<Q4_K>>, cover<QuantizedTile<Q5_K>>, cover<QuantizedTile<Q6_K>>,
};
