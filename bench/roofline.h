#pragma once
// The limits of this machine, as measured: what no kernel can be faster than, and what the other benchmarks give their
// share of. Each method is one figure of one round (measure.h), on all threads of its pool.
//
//   dram   GB/s read from a buffer that is several times the last cache
//   l3     GB/s read from one that fits it and not the caches before it
//   fma    GFLOP/s of f32 multiply-adds, two operations each
//   dot8   Gop/s of products of bytes summed in 32 bits, two operations each, by the tier's best instruction
//   dot4   likewise where the weights have 4 bits: without VNNI eight products may be summed in 16 bits first
//
// A share above 1 of `dram` says that the bytes came from a cache.

#include <functional>
#include <memory>

#include "bench/measure.h"
#include "quire/base/cpu.h"
#include "quire/base/thread_pool.h"
#include "quire/tensor/aligned_buffer.h"

namespace quire::bench {

class Roofline {
 public:
  Roofline(CpuTier tier, int threads, double seconds);
  ~Roofline();

  double dram();
  double l3();
  double fma();
  double dot8();
  double dot4();

  ThreadPool& pool() { return pool_; }
  std::size_t l3_bytes() const { return l3_bytes_; }  ///< of the buffer that l3() reads

 private:
  double read(std::size_t bytes);
  double compute(double operations, const std::function<void(std::int64_t iterations)>& loop);

  struct Kernels;
  std::unique_ptr<const Kernels> kernels_;
  ThreadPool pool_;
  double seconds_;
  std::size_t l3_bytes_;
  AlignedBuffer buffer_;
};

}  // namespace quire::bench
