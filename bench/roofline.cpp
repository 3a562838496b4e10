#include "bench/roofline.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "bench/roofline_kernels.h"

namespace quire::bench {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::uint64_t read_words(const std::byte* data, std::size_t bytes) {
  std::uint64_t sum[8] = {};
  for (std::size_t at = 0; at < bytes; at += 64) {
    std::uint64_t words[8];
    std::memcpy(words, data + at, sizeof words);
    for (int i = 0; i < 8; ++i) sum[i] ^= words[i];
  }
  return sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

float fma_floats(std::int64_t iterations) {
  float chain[32];
  std::fill(std::begin(chain), std::end(chain), 1.0f);
  for (std::int64_t n = 0; n < iterations; ++n) {
    asm volatile("" : : "r"(chain) : "memory");
    for (float& c : chain) c = c * 0.999f + 0.001f;
  }
  return chain[0] + chain[31];
}

std::int32_t dot_bytes(std::int64_t iterations) {
  std::uint8_t u[64];
  std::int8_t s[64];
  for (int i = 0; i < 64; ++i) u[i] = static_cast<std::uint8_t>(i), s[i] = static_cast<std::int8_t>(-i);
  std::int32_t sum = 0;
  for (std::int64_t n = 0; n < iterations; ++n) {
    asm volatile("" : : "r"(u), "r"(s) : "memory");
    for (int i = 0; i < 64; ++i) sum += u[i] * s[i];
  }
  return sum;
}

RooflineKernels choose(CpuTier tier) {
  switch (tier) {
    case CpuTier::scalar:
      return roofline_scalar();
    case CpuTier::avx2:
      return roofline_avx2();
    case CpuTier::avxvnni:
      return roofline_avxvnni();
    case CpuTier::avx512:
      return roofline_avx512();
    case CpuTier::avx512vnni:
      return roofline_avx512vnni();
  }
  return roofline_scalar();
}

/// What the system says, or a guess.
std::size_t cache_bytes(int name, std::size_t fallback) {
  const long bytes = sysconf(name);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : fallback;
}

/// Half of the last cache, since others use it too; but more than the second-level caches of all threads hold.
std::size_t choose_l3_bytes(int threads) {
  const std::size_t l2 = cache_bytes(_SC_LEVEL2_CACHE_SIZE, kMiB) * static_cast<std::size_t>(threads);
  const std::size_t l3 = cache_bytes(_SC_LEVEL3_CACHE_SIZE, 16 * kMiB);
  return std::max(std::min(l3 / 2, 16 * kMiB), 2 * l2) / kMiB * kMiB;
}

}  // namespace

RooflineKernels roofline_scalar() {
  return {.read = read_words,
          .fma = fma_floats,
          .fma_operations = 32 * 2,
          .dot = dot_bytes,
          .dot_operations = 64 * 2,
          .dot4 = dot_bytes,
          .dot4_operations = 64 * 2};
}

struct Roofline::Kernels : RooflineKernels {};

Roofline::Roofline(CpuTier tier, int threads, double seconds)
    : kernels_(new Kernels{choose(tier)}),
      pool_(threads),
      seconds_(seconds),
      l3_bytes_(choose_l3_bytes(threads)),
      buffer_(std::max(256 * kMiB, 4 * cache_bytes(_SC_LEVEL3_CACHE_SIZE, 0) / kMiB * kMiB)) {
  for (std::size_t at = 0; at < buffer_.size(); at += 512) buffer_.data()[at] = std::byte{1};
}

Roofline::~Roofline() = default;

double Roofline::read(std::size_t bytes) {
  const std::size_t share = bytes / static_cast<std::size_t>(pool_.num_threads()) / 1024 * 1024;
  const double seconds = seconds_per_call(seconds_, [&] {
    pool_.run([&](Worker& worker) {
      keep(kernels_->read(buffer_.data() + static_cast<std::size_t>(worker.index()) * share, share));
    });
  });
  return static_cast<double>(share) * pool_.num_threads() / seconds * 1e-9;
}

double Roofline::compute(double operations, const std::function<void(std::int64_t)>& loop) {
  constexpr std::int64_t kIterations = 1 << 16;
  const double seconds = seconds_per_call(seconds_, [&] { pool_.run([&](Worker&) { loop(kIterations); }); });
  return operations * kIterations * pool_.num_threads() / seconds * 1e-9;
}

double Roofline::dram() { return read(buffer_.size()); }
double Roofline::l3() { return read(l3_bytes_); }
double Roofline::fma() {
  return compute(kernels_->fma_operations, [this](std::int64_t n) { keep(kernels_->fma(n)); });
}
double Roofline::dot8() {
  return compute(kernels_->dot_operations, [this](std::int64_t n) { keep(kernels_->dot(n)); });
}
double Roofline::dot4() {
  // Where summing in 16 bits is no gain, the limit is that of dot8.
  return std::max(dot8(), compute(kernels_->dot4_operations, [this](std::int64_t n) { keep(kernels_->dot4(n)); }));
}

}  // namespace quire::bench
