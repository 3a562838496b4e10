// Integer dot products by vpdpbusd. Included inside the namespace of a tier, after its simd header and its
//   Ints dot4(Ints acc, Bytes u, const std::int8_t* x)   acc += four products of unsigned bytes and x[0..3]

/// kCount vectors of weights, four columns each, in the form that dot() wants.
template <int kBits, int kCount>
struct Weights {
  Bytes u[kCount];
};

/// Signed weights become unsigned by adding 128; the sums of the activations take it back.
template <int kBits>
inline constexpr int kDotOffset = kBits == 8 ? 128 : 0;

/// Whether dot_in_shorts() takes off a format's offset: here dot() starts with it.
template <class Format>
inline constexpr bool kOffsetInShorts = false;

template <int kBits, int kCount>
inline void set_weights(Weights<kBits, kCount>& out, int i, Bytes codes) {
  out.u[i] = kBits == 8 ? bytes_xor(codes, every_byte(0x80)) : codes;
}

/// Adds to sums[t] the products of the weights with 4 * kCount activations at x, of the t-th group from there.
template <int kTokens, int kBits, int kCount>
inline void dot(const Weights<kBits, kCount>& w, const std::int8_t* x, Ints (&sums)[kTokens]) {
  constexpr int kStride = sizeof(quant::ActivationGroup);
  QUIRE_UNROLL
  for (int i = 0; i < kCount; ++i) {
    QUIRE_UNROLL
    for (int t = 0; t < kTokens; ++t) sums[t] = dot4(sums[t], w.u[i], x + t * kStride + 4 * i);
  }
}
