#pragma once
// How benchmarks measure: rounds that interleave everything that is to be compared, so that a disturbance of the
// machine hits all sides; one figure a round. report::make_row turns the figures of the rounds into medians and ratios.

#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "bench/bench.h"

namespace quire::bench {

/// Keeps the compiler from dropping a computation whose result nobody uses.
template <class T>
void keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

template <class Body>
double seconds_of(Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Seconds of one call: calls it until at least `at_least` seconds have passed.
template <class Body>
double seconds_per_call(double at_least, Body&& body) {
  double seconds = 0;
  std::int64_t calls = 0;
  for (std::int64_t batch = 1; seconds < at_least || calls == 0; batch *= 2) {
    seconds += seconds_of([&] {
      for (std::int64_t i = 0; i < batch; ++i) body();
    });
    calls += batch;
  }
  return seconds / static_cast<double>(calls);
}

using Measure = std::function<double()>;

/// figures[i][round] of measures[i]: each is called once a round, after one round that is not counted. Every other
/// round goes backwards.
std::vector<std::vector<double>> run_rounds(int rounds, const std::vector<Measure>& measures);

}  // namespace quire::bench
