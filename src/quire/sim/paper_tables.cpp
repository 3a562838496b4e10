// Tables that are exact: Mooncake's prefix hit rates and vAttention's sizes.

#include "quire/sim/paper_systems.h"
#include "quire/sim/prefix_replay.h"

namespace quire {

PaperFigure reproduce_mooncake(const PaperInputs& inputs) {
  struct Target {
    std::int32_t blocks;
    double conversation, synthetic;  ///< %
  };
  constexpr Target kTargets[] = {{1'000, 4.5, 8.6},     {3'000, 6.7, 19.4},   {5'859, 13.9, 31.5},
                                 {10'000, 21.6, 43.2},  {30'000, 33.2, 63.6}, {50'000, 36.2, 65.1},
                                 {100'000, 37.1, 65.1}, {0, 37.4, 65.1}};
  PaperFigure figure;
  figure.title = "Prompt tokens found in a prefix cache: Mooncake's traces, blocks of 512, least recently used goes";
  for (const auto& [name, requests] :
       {std::pair<const char*, const std::vector<RequestSpec>*>{"conversation", &inputs.conversation},
        {"synthetic", &inputs.synthetic}})
    for (const Target& target : kTargets) {
      const double wanted = requests == &inputs.conversation ? target.conversation : target.synthetic;
      const double ours = 100 * replay_prefixes(*requests, target.blocks).token_rate();
      figure.rows.push_back({target.blocks == 0 ? cat(name, ", unlimited") : cat(name, ", ", target.blocks, " blocks"),
                             wanted,
                             ours,
                             wanted - 0.1,
                             wanted + 0.1,
                             "%",
                             {}});
    }
  figure.notes = {
      "Reference: replays of the published files, in their order, without time, by others' code. The paper prints "
      "40 % and 66 % as the ideal of its own, larger traces.",
      "Blocks of the engine's own pool, in its order of eviction."};
  return figure;
}

namespace {

struct Shape {
  std::string_view name;
  std::int64_t layers, kv_heads, head_dim;
};
constexpr Shape kShapes[] = {{"Yi-6B", 32, 4, 128}, {"Llama-3-8B", 32, 8, 128}, {"Yi-34B", 60, 8, 128}};
constexpr std::int64_t kElementBytes = 2;
constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kGroups[] = {64 * kKiB, 128 * kKiB, 256 * kKiB, 2048 * kKiB};

std::string group_name(std::int64_t bytes) {
  return bytes >= 1024 * kKiB ? cat(bytes / 1024 / kKiB, " MB") : cat(bytes / kKiB, " KB");
}

PaperRow exact(std::string what, double paper, double ours, std::string unit) {
  return {std::move(what), paper, ours, paper, paper, std::move(unit), {}};
}

}  // namespace

PaperFigure reproduce_vattention(const PaperInputs&) {
  // [model][page-group], one GPU; two have twice as many tokens a group, and twice the waste over all workers.
  constexpr double kTokens[3][4] = {{64, 128, 256, 2048}, {32, 64, 128, 1024}, {32, 64, 128, 1024}};
  constexpr double kWasteMb[3][4] = {{4, 8, 16, 128}, {4, 8, 16, 128}, {7.5, 15, 30, 240}};
  constexpr double kSliced[3][2] = {{64, 128}, {32, 64}, {17, 34}};
  PaperFigure figure;
  figure.title = "vAttention: sizes of page-groups (no claim about GPU kernels)";
  for (std::size_t m = 0; m < 3; ++m)
    for (std::int64_t gpus : {1, 2}) {
      const Shape& shape = kShapes[m];
      const std::int64_t token_bytes = shape.kv_heads / gpus * shape.head_dim * kElementBytes;  // of K or V, one layer
      const std::string label = cat(shape.name, ", ", gpus, gpus == 1 ? " GPU, " : " GPUs, ");
      for (std::size_t g = 0; g < 4; ++g) {
        figure.rows.push_back(exact(label + group_name(kGroups[g]) + ": tokens a group",
                                    kTokens[m][g] * static_cast<double>(gpus),
                                    static_cast<double>(kGroups[g] / token_bytes), "tokens"));
        const std::int64_t waste = 2 * shape.layers * kGroups[g] * gpus;
        figure.rows.push_back(exact(label + group_name(kGroups[g]) + ": at most wasted a request",
                                    kWasteMb[m][g] * static_cast<double>(gpus),
                                    static_cast<double>(waste) / static_cast<double>(1024 * kKiB), "MB"));
      }
      figure.rows.push_back(exact(label + "2 MB, all layers in one tensor: tokens a group", kSliced[m][gpus - 1],
                                  static_cast<double>(kGroups[3] / (shape.layers * token_bytes)), "tokens"));
    }
  figure.notes = {
      "A group maps K or V of one layer of one request: G / (heads * head size * 2 bytes) tokens; a request wastes "
      "less than one group in each of 2 * layers tensors on each GPU."};
  return figure;
}

}  // namespace quire
