// The matrix product kernels, written once for every tier. Included inside the namespace of a tier, after the formats
// and the tier's
//   constexpr int kMaxTokens       tokens that share one unpacking of quantised weights
//   constexpr int kTokensAtOnce    of these, tokens that share one load of the unpacked weights
//   constexpr int kMaxFloatTokens  tokens of a tile of float weights; all three are powers of two
//
// A tile is kStrips strips times kTokens tokens with its sums in registers. With float weights one or two tokens take
// several strips at once, so that the chains along K overlap.

inline void prefetch(const std::uint8_t* p, int bytes) {
  for (int at = 0; at < bytes; at += 64) __builtin_prefetch(p + at);
}

/// How far ahead to prefetch: as much as memory delivers within its latency, so more the fewer tokens there are to
/// compute with what comes. One sequential stream with a long lead brings more bytes a second than several.
constexpr std::int64_t prefetch_lead(int tokens) { return tokens <= 4 ? 16384 : tokens <= 8 ? 8192 : 6144; }

/// What is read `lead` bytes after `at`.
inline const std::uint8_t* place_ahead(const MatmulTask& task, const std::uint8_t* at, std::int64_t lead) {
  const auto* end = reinterpret_cast<const std::uint8_t*>(task.stretch_end);
  return end - at > lead ? at + lead : reinterpret_cast<const std::uint8_t*>(task.then) + (lead - (end - at));
}

/// Sums of a tile as [strip][token], to the output, with the bias; rows past the matrix are dropped.
template <int kStrips, int kTokens>
inline void store_tile(const MatmulTask& task, std::int64_t strip, std::int64_t token,
                       const Floats (&sums)[kStrips][kTokens]) {
  QUIRE_UNROLL
  for (int r = 0; r < kStrips; ++r) {
    std::int64_t row = (strip + r) * 16;
    std::int64_t rows = task.num_rows - row;
    float bias[16] = {};
    for (int i = 0; task.bias != nullptr && i < 16 && i < rows; ++i) bias[i] = task.bias[row + i];
    QUIRE_UNROLL  // else the sums would live in memory
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

/// Where the products of a half of a group start, or of a whole group where the format has no halves: -offset times the
/// sum of the activations.
template <class Format>
inline Ints offset_part(int half, const quant::ActivationGroup& x) {
  constexpr int kOffset = Format::kOffset + kDotOffset<Format::kBits>;
  if constexpr (kOffset == 0) return zero_ints();
  if constexpr (Format::kHalves == 2) return broadcast4(&x.minus_32sum[half]);
  constexpr int kShift = kOffset == 8 ? 4 : kOffset == 16 ? 3 : 0;
  static_assert(kOffset == 0 || kOffset << (Format::kHalves == 2 ? 2 : kShift) == 128);
  return shift_ints_right<kShift>(broadcast4(&x.minus_128sum));
}

/// The products of a half of a group, or of a whole group, with kTokens tokens.
template <int kTokens, class Format>
inline void multiply_codes(const GroupWeights<Format>& weights, int half, const quant::ActivationGroup* x,
                           Ints (&products)[kTokens]) {
  const std::int8_t* q = x->q + half * 16;
  if constexpr (kOffsetInShorts<Format>) {
    dot_in_shorts(weights.codes[half], q, Format::kHalves == 2 ? x->minus_32sum_pair[half] : x->minus_16sum_pair,
                  products);
  } else {
    QUIRE_UNROLL
    for (int t = 0; t < kTokens; ++t) products[t] = offset_part<Format>(half, x[t]);
    dot(weights.codes[half], q, products);
  }
}

/// One group times kTokens tokens, whose groups are neighbours.
template <int kTokens, class Format>
inline void add_group(const GroupWeights<Format>& weights, const quant::ActivationGroup* x, Floats* sums) {
  QUIRE_UNROLL
  for (int half = 0; half < Format::kHalves; ++half) {
    Ints products[kTokens];
    multiply_codes(weights, half, x, products);
    QUIRE_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      Floats scale = multiply(weights.scale[half], every_float(x[t].d));
      sums[t] = fused(to_floats(products[t]), scale, sums[t]);
    }
  }
  if constexpr (Format::kMinimum) {
    QUIRE_UNROLL
    for (int t = 0; t < kTokens; ++t) sums[t] = fused(weights.minimum, every_float(x[t].s), sums[t]);
  }
}

/// One strip times kTokens tokens. Even one token does well with a single strip: only two steps of each group are a
/// chain.
template <class Format, int kTokens>
void quantized_tile(const MatmulTask& task, std::int64_t strip, std::int64_t token) {
  constexpr quant::PackedLayout kLayout = Format::kLayout;
  constexpr int kQuantBytesOfBlock = kLayout.groups_per_block * kLayout.quant_bytes;
  constexpr int kRowBlock = quant::kRowBlock;
  constexpr int kStep = kTokens < kTokensAtOnce ? kTokens : kTokensAtOnce;
  constexpr std::int64_t kLead = prefetch_lead(kTokens);
  static_assert(kRowBlock % kTokens == 0);  // a tile lies in one block of rows
  std::int64_t groups = task.cols / 32;
  const quant::ActivationGroup* x = task.groups + token / kRowBlock * kRowBlock * groups + token % kRowBlock;
  const std::uint8_t* block = reinterpret_cast<const std::uint8_t*>(task.strips) + strip * task.strip_bytes;
  Floats sums[1][kTokens];
  QUIRE_UNROLL
  for (int t = 0; t < kTokens; ++t) sums[0][t] = zero_floats();
  for (std::int64_t first = 0; first < groups; first += kLayout.groups_per_block, block += kLayout.block_bytes()) {
    const std::uint8_t* scales = block + kQuantBytesOfBlock;
    const BlockScales block_scales = load_block_scales<Format>(scales);
    const std::uint8_t* ahead = place_ahead(task, block, kLead);
    prefetch(ahead + kQuantBytesOfBlock, kLayout.scale_bytes);
    for (int within = 0; within < kLayout.groups_per_block && first + within < groups; ++within, x += kRowBlock) {
      const std::uint8_t* quants = block + within * kLayout.quant_bytes;
      GroupWeights<Format> weights;
      unpack_codes(quants, weights);
      load_scales(scales, within, block_scales, weights);
      prefetch(ahead + within * kLayout.quant_bytes, kLayout.quant_bytes);
      QUIRE_UNROLL
      for (int t = 0; t < kTokens; t += kStep) add_group<kStep>(weights, x + t, &sums[0][t]);
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
  constexpr std::int64_t kLead = 2048;
  const std::uint8_t* column = reinterpret_cast<const std::uint8_t*>(task.strips) + strip * task.strip_bytes;
  const float* x = task.x + token * task.x_stride;
  Floats sums[kStrips][kTokens];
  for (auto& row : sums) {
    for (auto& sum : row) sum = zero_floats();
  }
  for (std::int64_t k = 0; k < task.cols; ++k, column += Format::kBytes) {
    QUIRE_UNROLL
    for (int r = 0; r < kStrips; ++r) {
      const std::uint8_t* at = column + r * task.strip_bytes;
      Floats weights = Format::load(at);
      if (kTokens <= 4) __builtin_prefetch(at + kLead);
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
  static constexpr int kMaxTileTokens = kMaxTokens, kStripsForOneToken = 1, kStripsForTwoTokens = 1;
  template <int kStrips, int kTokens>
  static void run(const MatmulTask& task, std::int64_t strip, std::int64_t token) {
    static_assert(kStrips == 1);
    quantized_tile<Format, kTokens>(task, strip, token);
  }
};
template <class Format>
struct FloatTile {
  static constexpr int kMaxTileTokens = kMaxFloatTokens, kStripsForOneToken = 4, kStripsForTwoTokens = 2;
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
  std::int64_t strip = 0;
  if (task.num_tokens == 1) {
    for (; strip + Tile::kStripsForOneToken <= task.num_strips; strip += Tile::kStripsForOneToken) {
      Tile::template run<Tile::kStripsForOneToken, 1>(task, strip, 0);
    }
  } else if (task.num_tokens == 2) {
    for (; strip + Tile::kStripsForTwoTokens <= task.num_strips; strip += Tile::kStripsForTwoTokens) {
      Tile::template run<Tile::kStripsForTwoTokens, 2>(task, strip, 0);
    }
  }
  for (; strip < task.num_strips; ++strip) cover_tokens<Tile, 1, Tile::kMaxTileTokens>(task, strip, 0);
}

inline constexpr MatmulKernels kKernels = {
    cover<FloatTile<F32>>,      cover<FloatTile<F16>>,      cover<FloatTile<BF16>>,     cover<QuantizedTile<Q4_0>>,
    cover<QuantizedTile<Q4_1>>, cover<QuantizedTile<Q5_0>>, cover<QuantizedTile<Q5_1>>, cover<QuantizedTile<Q8_0>>,
    cover<QuantizedTile<Q4_K>>, cover<QuantizedTile<Q5_K>>, cover<QuantizedTile<Q6_K>>,
};
