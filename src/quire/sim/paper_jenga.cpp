// Layers of different kinds in common large pages, after Jenga (Zhang et al., SOSP 2025), against uniform paging.

#include <algorithm>

#include "quire/base/cat.h"
#include "quire/base/check.h"
#include "quire/base/checked.h"
#include "quire/base/rng.h"
#include "quire/sim/large_page_allocator.h"
#include "quire/sim/paper_systems.h"

namespace quire {
namespace {

constexpr std::int32_t kPageTokens = 16, kChunk = 512;
constexpr std::int64_t kLayerPage = kPageTokens * 2 * 8 * 128 * 2;  ///< K and V in f16 of 8 KV heads of 128
constexpr std::int64_t kMemory = std::int64_t{24} << 30;
constexpr std::int64_t kLongest = 32'768;

struct Shape {
  std::string_view name;
  std::vector<PageKind> kinds;
  std::optional<double> paper;  ///< Jenga's throughput over vLLM's, on an H100
};

std::vector<Shape> shapes() {
  return {{"Gemma 3 27B (52 layers see 1,024 tokens, 10 all)",
           {{10 * kLayerPage, 0}, {52 * kLayerPage, 1024}},
           0.25 / 0.18},
          {"Llama 4 Scout (36 layers see 8,192 tokens, 12 all)",
           {{12 * kLayerPage, 0}, {36 * kLayerPage, 8192}},
           1.16 / 0.67},
          {"Llama 3.1 8B (32 layers see all)", {{32 * kLayerPage, 0}}, 9.21 / 9.23}};
}

std::int64_t bytes_of_all(const std::vector<PageKind>& kinds) {
  std::int64_t bytes = 0;
  for (const PageKind& kind : kinds) bytes += kind.page_bytes;
  return bytes;
}

/// Large pages that a sequence has at most while it grows to num_tokens, a chunk at a time.
std::int64_t large_pages_for(const std::vector<PageKind>& kinds, std::int64_t large_bytes, std::int64_t num_tokens) {
  std::int64_t count = 0;
  for (const PageKind& kind : kinds) {
    const std::int64_t seen = kind.window == 0 ? num_tokens : std::min<std::int64_t>(num_tokens, kind.window + kChunk);
    count += ceil_div(ceil_div(seen, kPageTokens) + 1, large_bytes / kind.page_bytes);
  }
  return count;
}

/// Share of what uniform paging holds for a sequence of so many tokens; what has been carved counts as held.
double share_held(const std::vector<PageKind>& kinds, std::int64_t num_tokens) {
  LargePageAllocator allocator(kMemory, kPageTokens, kinds);
  for (std::int64_t end = kChunk; end <= num_tokens; end += kChunk) {
    QUIRE_CHECK(allocator.try_grow(SequenceId{1}, end), "no room for one sequence");
    allocator.pass(SequenceId{1}, end);
  }
  return static_cast<double>(allocator.taken_bytes()) /
         static_cast<double>(num_tokens / kPageTokens * bytes_of_all(kinds));
}

/// On average, of a queue that never ends: sequences of 1,024 to kLongest tokens, each growing by a chunk a step, first
/// come first served, each admitted when there is room for all it will ever hold.
double requests_at_once(const std::vector<PageKind>& kinds, const PaperInputs& inputs) {
  struct Running {
    SequenceId id;
    std::int64_t length, target, large_pages;
  };
  LargePageAllocator allocator(kMemory, kPageTokens, kinds);
  Rng rng(inputs.seed);
  std::vector<Running> running;
  std::int64_t promised = 0, next_target = rng.between(1024, kLongest);
  std::uint64_t next_id = 1, total = 0;
  const int num_steps = inputs.reduced ? 500 : 2000;
  for (int step = 0; step < num_steps; ++step) {
    for (;;) {
      const std::int64_t needed = large_pages_for(kinds, allocator.large_page_bytes(), next_target);
      if (promised + needed > allocator.num_large_pages()) break;
      running.push_back({SequenceId{next_id++}, 0, next_target, needed});
      promised += needed;
      next_target = rng.between(1024, kLongest);
    }
    for (Running& r : running) {
      const std::int64_t end = std::min<std::int64_t>(r.length + kChunk, r.target);
      if (!allocator.try_grow(r.id, end)) continue;
      allocator.pass(r.id, end);
      r.length = end;
    }
    total += running.size();
    std::erase_if(running, [&](const Running& r) {
      if (r.length < r.target) return false;
      allocator.release(r.id);
      promised -= r.large_pages;
      return true;
    });
  }
  return static_cast<double>(total) / num_steps;
}

}  // namespace

PaperFigure reproduce_jenga(const PaperInputs& inputs) {
  PaperFigure figure;
  figure.title =
      "Layers of different kinds in common large pages (Jenga), over uniform paging: 24 GiB, up to 32k tokens";
  for (const Shape& shape : shapes()) {
    double active = 0;  // what the last position sees, of all
    for (const PageKind& kind : shape.kinds) {
      const auto seen = static_cast<double>(kind.window == 0 ? kLongest : kind.window);
      active += static_cast<double>(kind.page_bytes) * seen / static_cast<double>(kLongest);
    }
    const double percent = 100 * active / static_cast<double>(bytes_of_all(shape.kinds));
    figure.rows.push_back({cat(shape.name, ": KV held at 32k tokens"),
                           {},
                           100 * share_held(shape.kinds, kLongest),
                           percent,
                           percent * 1.1,
                           "%",
                           "at least what the last position sees, large pages add less than a tenth"});
    const std::vector<PageKind> uniform = {{bytes_of_all(shape.kinds), 0}};
    const double ratio = requests_at_once(shape.kinds, inputs) / requests_at_once(uniform, inputs);
    const bool is_control = shape.kinds.size() == 1;
    figure.rows.push_back({cat(shape.name, ": requests at once"), shape.paper, ratio, is_control ? 0.99 : 1.0,
                           is_control ? std::optional(1.01) : std::nullopt, "x",
                           "the paper's is throughput on an H100"});
  }
  figure.notes = {"Lengths are even from 1,024 to 32,768 tokens; a request is admitted when all it will hold has room.",
                  "Weights, computing time and the paper's data sets are left out: what is compared is the allocator."};
  return figure;
}

}  // namespace quire
