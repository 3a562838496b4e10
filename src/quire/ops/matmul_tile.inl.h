// The matrix product kernels, written once for every tier. Included inside the namespace of a tier, after the formats
// and the tier's
//   constexpr int kMaxTokens       tokens that share one unpacking of quantised weights
//   constexpr int kTokensAtOnce    of these, tokens that share one load of the unpacked weights
//   constexpr int kMaxFloatTokens  tokens of a tile of float weights; all three are powers of two
//
// A tile is kStrips strips times kTokens tokens with its sums in registers. One or two tokens take several strips at
// once, so that the chains along K overlap.

inline void prefetch(const std::uint8_t* p, int bytes) {
  for (int at = 0; at < bytes; at += 64) __builtin_prefetch(p + at);
}

/// How far ahead to prefetch at `at` of a strip: past the strip's end, in the strip that this place of the tile walks
/// next.
inline std::int64_t prefetch_distance(const MatmulTask& task, std::int64_t at, int strips) {
  constexpr std::int64_t kAhead = 2048;
  return at + kAhead < task.strip_bytes ? kAhead : kAhead + (strips - 1) * task.strip_bytes;
}

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

/// What the sums of activations contribute: -offset times the sum of half `half` of a group, or of the whole group
/// where the format has no halves.
template <class Format>
inline Ints offset_part(int half, const std::int16_t* sum16) {
  constexpr int kOffset = Format::kOffset + kDotOffset<Format::kBits>;
  if constexpr (kOffset == 0) return zero_ints();
  bool whole = Format::kHalves == 1;
  int factors = offset_pair(kOffset, whole || half == 0, whole || half == 1);
  return multiply_shorts(broadcast4(sum16), every_int(factors));
}

/// One group times kTokens tokens; `at` is the first token's index of the group in [tokens, group_stride].
template <int kTokens, class Format>
inline void add_group(const GroupWeights<Format>& weights, const MatmulTask& task, std::int64_t at, Floats* sums) {
  std::int64_t stride = task.group_stride;
  QUIRE_UNROLL
  for (int half = 0; half < Format::kHalves; ++half) {
    Ints products[kTokens];
    QUIRE_UNROLL
    for (int t = 0; t < kTokens; ++t) products[t] = offset_part<Format>(half, task.sum16 + (at + t * stride) * 2);
    dot(weights.codes[half], task.q + at * 32 + half * 16, stride * 32, products);
    QUIRE_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      Floats scale = multiply(weights.scale[half], every_float(task.d[at + t * stride]));
      sums[t] = fused(to_floats(products[t]), scale, sums[t]);
    }
  }
  if constexpr (Format::kMinimum) {
    QUIRE_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      sums[t] = fused(weights.minimum, every_float(task.s[at + t * stride]), sums[t]);
    }
  }
}

template <class Format, int kStrips, int kTokens>
void quantized_tile(const MatmulTask& task, std::int64_t strip, std::int64_t token) {
  constexpr quant::PackedLayout kLayout = Format::kLayout;
  constexpr int kQuantBytesOfBlock = kLayout.groups_per_block * kLayout.quant_bytes;
  std::int64_t groups = task.cols / 32;
  std::int64_t first_at = token * task.group_stride;
  const std::uint8_t* start = reinterpret_cast<const std::uint8_t*>(task.strips) + strip * task.strip_bytes;
  const std::uint8_t* block = start;
  Floats sums[kStrips][kTokens];
  for (auto& row : sums) {
    for (auto& sum : row) sum = zero_floats();
  }
  for (std::int64_t first = 0; first < groups; first += kLayout.groups_per_block, block += kLayout.block_bytes()) {
    std::int64_t ahead = prefetch_distance(task, block - start, kStrips);
    BlockScales block_scales[kStrips];
    for (int r = 0; r < kStrips; ++r) {
      const std::uint8_t* scales = block + r * task.strip_bytes + kQuantBytesOfBlock;
      block_scales[r] = load_block_scales<Format>(scales);
      if (kTokens <= 8) prefetch(scales + ahead, kLayout.scale_bytes);
    }
    for (int within = 0; within < kLayout.groups_per_block && first + within < groups; ++within) {
      QUIRE_UNROLL
      for (int r = 0; r < kStrips; ++r) {
        const std::uint8_t* quants = block + r * task.strip_bytes + within * kLayout.quant_bytes;
        GroupWeights<Format> weights;
        unpack_codes(quants, weights);
        load_scales(block + r * task.strip_bytes + kQuantBytesOfBlock, within, block_scales[r], weights);
        if (kTokens <= 8) prefetch(quants + ahead, kLayout.quant_bytes);
        constexpr int kStep = kTokens < kTokensAtOnce ? kTokens : kTokensAtOnce;
        for (int t = 0; t < kTokens; t += kStep) {
          add_group<kStep>(weights, task, first_at + t * task.group_stride + first + within, &sums[r][t]);
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
  const std::uint8_t* start = reinterpret_cast<const std::uint8_t*>(task.strips) + strip * task.strip_bytes;
  const std::uint8_t* column = start;
  const float* x = task.x + token * task.x_stride;
  Floats sums[kStrips][kTokens];
  for (auto& row : sums) {
    for (auto& sum : row) sum = zero_floats();
  }
  for (std::int64_t k = 0; k < task.cols; ++k, column += Format::kBytes) {
    std::int64_t ahead = prefetch_distance(task, column - start, kStrips);
    QUIRE_UNROLL
    for (int r = 0; r < kStrips; ++r) {
      const std::uint8_t* at = column + r * task.strip_bytes;
      Floats weights = Format::load(at);
      if (kTokens <= 4) __builtin_prefetch(at + ahead);
      QUIRE_UNROLL
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
