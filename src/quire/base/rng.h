#pragma once
// Random numbers without hidden state. random_at(seed, position, draw) is a pure function: the same arguments give the
// same number on every machine, in any batch and any order. Rng is the sequential form of it, for tests and simulation.

#include <cstdint>

#include "quire/base/hash.h"

namespace quire {

/// 64 random bits keyed by (seed, position, draw).
constexpr std::uint64_t random_at(std::uint64_t seed, std::uint64_t position, std::uint64_t draw = 0) {
  std::uint64_t x = mix64(seed + 0x9E3779B97F4A7C15ull);
  x = mix64(x ^ (position + 0xD1B54A32D192ED03ull));
  return mix64(x ^ (draw + 0x8CB92BA72F3D8DD7ull));
}

/// Uniform in [0, 1) from 64 random bits: a multiple of 2^-53.
constexpr double unit_interval(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1.0p-53; }

/// A sequential generator; satisfies UniformRandomBitGenerator.
class Rng {
 public:
  using result_type = std::uint64_t;
  explicit constexpr Rng(std::uint64_t seed) : seed_(seed) {}
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return ~0ull; }
  constexpr result_type operator()() { return random_at(seed_, count_++); }

  /// Uniform in [low, high], both included.
  constexpr std::int64_t between(std::int64_t low, std::int64_t high) {
    auto width = static_cast<std::uint64_t>(high - low) + 1;
    return low + static_cast<std::int64_t>(width == 0 ? (*this)() : (*this)() % width);
  }
  constexpr double uniform() { return unit_interval((*this)()); }
  constexpr bool chance(double probability) { return uniform() < probability; }

 private:
  std::uint64_t seed_;
  std::uint64_t count_ = 0;
};

}  // namespace quire
