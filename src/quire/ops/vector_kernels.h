#pragma once
// The row operations of vector_ops_table.h, written once as a template over a tier's Lanes. Included by
// vector_ops_*.cpp.

#include <cstdint>

#include "quire/base/elementary.h"
#include "quire/ops/inline.h"
#include "quire/ops/lanes_exp.h"
#include "quire/ops/vector_ops_table.h"

namespace quire::ops {

template <class Lanes>
struct VectorKernels {
  using Doubles = typename Lanes::Doubles;

  static QUIRE_INLINE Lanes constant(float x) { return Lanes::broadcast(x); }

  /// Calls body(i, count) for each run of `count` <= 16 elements at i. The count is a literal 16 for all but the last.
  template <class Body>
  static QUIRE_INLINE void for_runs(std::int64_t n, Body&& body) {
    std::int64_t i = 0;
    for (; i + 16 <= n; i += 16) body(i, 16);
    if (i < n) body(i, n - i);
  }
  static QUIRE_INLINE Lanes load(const float* p, std::int64_t count) {
    return count == 16 ? Lanes::load(p) : Lanes::load_partial(p, count);
  }
  static QUIRE_INLINE void store(float* p, Lanes x, std::int64_t count) {
    count == 16 ? x.store(p) : x.store_partial(p, count);
  }

  static void rms_norm(const float* x, const float* weight, float eps, std::int64_t n, float* out) {
    Lanes squares = Lanes::zero();
    for_runs(n, [&](std::int64_t i, std::int64_t count) {
      Lanes v = load(x + i, count);
      squares = fma(v, v, squares);
    });
    float mean = sum(squares) / static_cast<float>(n);
    Lanes inverse = constant(1.0f / __builtin_sqrtf(mean + eps));
    for_runs(n, [&](std::int64_t i, std::int64_t count) {
      store(out + i, load(x + i, count) * inverse * load(weight + i, count), count);
    });
  }

  static void add(float* x, const float* y, std::int64_t n) {
    for_runs(n,
             [&](std::int64_t i, std::int64_t count) { store(x + i, load(x + i, count) + load(y + i, count), count); });
  }

  static void scale(float* x, float factor, std::int64_t n) {
    Lanes f = constant(factor);
    for_runs(n, [&](std::int64_t i, std::int64_t count) { store(x + i, load(x + i, count) * f, count); });
  }

  static void silu_mul(const float* gate, const float* up, std::int64_t n, float* out) {
    for_runs(n, [&](std::int64_t i, std::int64_t count) {
      Lanes g = load(gate + i, count);
      Lanes silu = g / (constant(1.0f) + exp(Lanes::zero() - g));
      store(out + i, silu * load(up + i, count), count);
    });
  }

  static void gelu_tanh_mul(const float* gate, const float* up, std::int64_t n, float* out) {
    for_runs(n, [&](std::int64_t i, std::int64_t count) {
      Lanes g = load(gate + i, count);
      Lanes inner = fma(g * g, constant(0.044715f), constant(1.0f));
      Lanes minus_2u = g * inner * constant(-1.5957691216057308f);  // -2 sqrt(2 / pi)
      Lanes gelu = g / (constant(1.0f) + exp(minus_2u));
      store(out + i, gelu * load(up + i, count), count);
    });
  }

  /// (a, b) becomes (a cos - b sin, a sin + b cos).
  static QUIRE_INLINE void rotate(Lanes& a, Lanes& b, Lanes cosine, Lanes sine) {
    Lanes first = fnma(b, sine, a * cosine);
    b = fma(a, sine, b * cosine);
    a = first;
  }

  static void rope_neox(float* x, const float* cosine, const float* sine, std::int64_t rotary_dim) {
    std::int64_t half = rotary_dim / 2;
    for_runs(half, [&](std::int64_t i, std::int64_t count) {
      Lanes a = load(x + i, count), b = load(x + half + i, count);
      rotate(a, b, load(cosine + i, count), load(sine + i, count));
      store(x + i, a, count);
      store(x + half + i, b, count);
    });
  }

  static void rope_interleaved(float* x, const float* cosine, const float* sine, std::int64_t rotary_dim) {
    for_runs(rotary_dim / 2, [&](std::int64_t i, std::int64_t count) {
      std::int64_t low = count < 8 ? 2 * count : 16, high = 2 * count - low;
      Lanes even, odd, a, b;
      deinterleave(load(x + 2 * i, low), high == 0 ? Lanes::zero() : load(x + 2 * i + 16, high), even, odd);
      rotate(even, odd, load(cosine + i, count), load(sine + i, count));
      interleave(even, odd, a, b);
      store(x + 2 * i, a, low);
      if (high != 0) store(x + 2 * i + 16, b, high);
    });
  }

  static QUIRE_INLINE float largest_of(const float* x, std::int64_t n) {
    Lanes lowest = constant(-__builtin_inff()), best = lowest;
    for_runs(n, [&](std::int64_t i, std::int64_t count) {
      Lanes v = load(x + i, count);
      best = max(count == 16 ? v : select(Lanes::between(0, count), v, lowest), best);
    });
    return largest(best);
  }

  static double log_sum_exp(const float* x, std::int64_t n) {
    float top = largest_of(x, n);
    if (__builtin_fabsf(top) == __builtin_inff()) return top;
    Lanes shift = constant(top);
    Doubles total = Doubles::zero();
    for_runs(n, [&](std::int64_t i, std::int64_t count) {
      Lanes e = exp(load(x + i, count) - shift);
      total = accumulate(total, count == 16 ? e : select(Lanes::between(0, count), e, Lanes::zero()));
    });
    return static_cast<double>(top) + log_f64(sum(total));
  }

  static bool all_finite(const float* x, std::int64_t n) {
    Lanes zeros = Lanes::zero();  // stays zero: 0 * x is NaN for infinities and NaN
    for_runs(n, [&](std::int64_t i, std::int64_t count) { zeros = fma(load(x + i, count), Lanes::zero(), zeros); });
    return sum(zeros) == 0.0f;
  }

  static std::int64_t argmax(const float* x, std::int64_t n) {
    Lanes best = constant(largest_of(x, n));
    for (std::int64_t i = 0; i < n; i += 16) {
      std::int64_t count = n - i < 16 ? n - i : 16;
      std::uint32_t hits = bits(equal(load(x + i, count), best));
      if (count < 16) hits &= (1u << count) - 1;
      if (hits != 0) return i + __builtin_ctz(hits);
    }
    return 0;
  }

  static constexpr VectorOps table() {
    return {rms_norm,         add,       scale,       silu_mul,   gelu_tanh_mul,
            rope_interleaved, rope_neox, log_sum_exp, all_finite, argmax};
  }
};

}  // namespace quire::ops
