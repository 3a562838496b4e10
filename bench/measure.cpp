#include "bench/measure.h"

namespace quire::bench {

std::vector<std::vector<double>> run_rounds(int rounds, const std::vector<Measure>& measures) {
  std::vector<std::vector<double>> figures(measures.size());
  for (const Measure& measure : measures) measure();
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < measures.size(); ++i) {
      const std::size_t next = round % 2 == 0 ? i : measures.size() - 1 - i;
      figures[next].push_back(measures[next]());
    }
  }
  return figures;
}

}  // namespace quire::bench
