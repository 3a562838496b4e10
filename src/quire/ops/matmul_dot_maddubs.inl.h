// Integer dot products by vpmaddubsw, without overflow of its 16-bit sums (rule 7). Included inside the namespace of a
// tier, after its simd header.

/// kCount vectors of weights, four columns each, in the form that dot() wants.
template <int kBits, int kCount>
struct Weights {
  Bytes u[kCount];
};

/// Signed weights as magnitudes, whose sign goes to the activations: 128 * 127 * 2 fits in 16 bits.
template <int kCount>
struct Weights<8, kCount> {
  Bytes u[kCount];
  Bytes sign[kCount];
};

template <int kBits>
inline constexpr int kDotOffset = 0;

/// How many 16-bit products fit into one 16-bit sum: each is at most 2 * (2^bits - 1) * 127.
template <int kBits>
inline constexpr int kChain = kBits == 4   ? 8
                              : kBits == 5 ? 4
                              : kBits == 6 ? 2
                                           : 1;

/// Whether dot_in_shorts() takes off a format's offset.
template <class Format>
inline constexpr bool kOffsetInShorts = (Format::kBits == 5 && Format::kOffset == 16) ||
                                        (Format::kBits == 6 && Format::kOffset == 32);

template <int kBits, int kCount>
inline void set_weights(Weights<kBits, kCount>& out, int i, Bytes codes) {
  if constexpr (kBits == 8) {
    out.u[i] = magnitudes(codes);
    out.sign[i] = codes;
  } else {
    out.u[i] = codes;
  }
}

template <int kBits, int kCount>
inline Shorts products(const Weights<kBits, kCount>& w, int i, const std::int8_t* x) {
  Bytes activations = broadcast4(x + 4 * i);
  if constexpr (kBits == 8) activations = with_sign_of(activations, w.sign[i]);
  return multiply_bytes(w.u[i], activations);
}

/// Adds to sums[t] the products of the weights with 4 * kCount activations at x, of the t-th group from there.
template <int kTokens, int kBits, int kCount>
inline void dot(const Weights<kBits, kCount>& w, const std::int8_t* x, Ints (&sums)[kTokens]) {
  constexpr int kStride = sizeof(quant::ActivationGroup);
  constexpr int kStep = kChain<kBits> < kCount ? kChain<kBits> : kCount;
  QUIRE_UNROLL
  for (int first = 0; first < kCount; first += kStep) {
    Shorts chains[kTokens];
    QUIRE_UNROLL
    for (int t = 0; t < kTokens; ++t) chains[t] = products(w, first, x + t * kStride);
    QUIRE_UNROLL
    for (int i = first + 1; i < first + kStep; ++i) {
      QUIRE_UNROLL
      for (int t = 0; t < kTokens; ++t) chains[t] = add_shorts(chains[t], products(w, i, x + t * kStride));
    }
    QUIRE_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      sums[t] = add_ints(sums[t], multiply_shorts(chains[t], every_int(0x00010001)));
    }
  }
}

/// Sums to sums[t] the products with weights less their offset, all in one chain of 16 bits that starts with the pair
/// at `starts` of the t-th group from there. The chain may wrap: its end does fit, since 16 products with weights of
/// magnitude 16, or 8 of magnitude 32, are at most 32,512.
template <int kTokens, int kBits, int kCount>
inline void dot_in_shorts(const Weights<kBits, kCount>& w, const std::int8_t* x, const std::int16_t* starts,
                          Ints (&sums)[kTokens]) {
  static_assert(kCount << kBits == 256);
  constexpr int kStride = sizeof(quant::ActivationGroup);
  Shorts chains[kTokens];
  QUIRE_UNROLL
  for (int t = 0; t < kTokens; ++t) chains[t] = broadcast4(reinterpret_cast<const std::byte*>(starts) + t * kStride);
  QUIRE_UNROLL
  for (int i = 0; i < kCount; ++i) {
    QUIRE_UNROLL
    for (int t = 0; t < kTokens; ++t) chains[t] = add_shorts(chains[t], products(w, i, x + t * kStride));
  }
  QUIRE_UNROLL
  for (int t = 0; t < kTokens; ++t) sums[t] = multiply_shorts(chains[t], every_int(0x00010001));
}
