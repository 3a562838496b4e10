#include "sim_cost.h"

#include <array>
#include <bit>

#include "flags.h"
#include "quire/planning/gpu_profile.h"
#include "quire/sched/policy.h"
#include "quire/sched/step_composition.h"
#include "quire/workload/numbers.h"

namespace quire::cli {
namespace {

/// Layers, KV heads, elements a head, bytes an element.
Result<std::array<std::uint64_t, 4>> parse_shape(const std::string& shape) {
  const auto parts = split(shape, ',');
  std::array<std::uint64_t, 4> numbers;
  std::uint64_t bytes = 2;
  for (const std::string_view& part : parts) {
    const auto number = parse_integer(part);
    if (parts.size() != 4 || !number || *number < 1 || *number > 1 << 20)
      return fail("--model-shape: found '", shape, "', wanted LAYERS,KV_HEADS,HEAD_DIM,BYTES");
    numbers[static_cast<std::size_t>(&part - parts.data())] = static_cast<std::uint64_t>(*number);
    bytes *= static_cast<std::uint64_t>(*number);
    if (bytes >> 40 != 0) return fail("--model-shape: found ", bytes, " bytes a token, wanted less than 2^40");
  }
  return numbers;
}

std::vector<std::string> as_strings(std::span<const std::string_view> names) { return {names.begin(), names.end()}; }

}  // namespace

void add_memory_flags(CLI::App& command, MemoryFlags& flags) {
  auto* blocks = command.add_option("--blocks", flags.blocks, "Blocks of the pool (default: what --kv-bytes holds)")
                     ->check(CLI::Range(1, 1 << 24));
  add_bytes(command, "--kv-bytes", flags.kv_bytes, "Memory for K and V, as in 12GiB", "12GiB");
  blocks->excludes(command.get_option("--kv-bytes"));
  add_bytes(command, "--page-group", flags.page_group_bytes, "vAttention's page-groups, as in 64KiB", "2MiB");
  command
      .add_option("--model-shape", flags.model_shape,
                  "LAYERS,KV_HEADS,HEAD_DIM,BYTES; what a token takes (default: OPT-13B)")
      ->capture_default_str();
}

Result<void> apply(const MemoryFlags& flags, SystemOptions& options) {
  CoreOptions& core = options.core;
  core.num_blocks = flags.blocks;
  QUIRE_TRY(const auto shape, parse_shape(flags.model_shape));
  options.num_kv_tensors = static_cast<std::int32_t>(2 * shape[0]);
  options.token_bytes_per_tensor = static_cast<std::int64_t>(shape[1] * shape[2] * shape[3]);
  if (flags.page_group_bytes < 64 << 10 || flags.page_group_bytes > 2 << 20 ||
      !std::has_single_bit(flags.page_group_bytes))
    return fail("--page-group: found ", flags.page_group_bytes, " bytes, wanted a power of two from 64KiB to 2MiB");
  options.page_group_bytes = static_cast<std::int64_t>(flags.page_group_bytes);
  if (flags.blocks == 0) {
    const std::uint64_t slots = flags.kv_bytes / (2 * shape[0] * shape[1] * shape[2] * shape[3]);
    const std::uint64_t blocks = slots / static_cast<std::uint64_t>(core.block_size);
    if (blocks < 1 || blocks > 1 << 24)
      return fail("found room for ", blocks, " blocks in ", flags.kv_bytes, " bytes, wanted 1 to ", 1 << 24);
    core.num_blocks = static_cast<std::int32_t>(blocks);
    options.pool_slots = static_cast<std::int64_t>(slots);
  }
  return {};
}

void add_core_flags(CLI::App& command, SystemOptions& options) {
  CoreOptions& core = options.core;
  core.context_tokens = 1 << 20;
  const auto positive = CLI::Range(1, 1 << 30);
  command.add_option("--block-size", core.block_size, "Tokens a block: 8, 16, 32, 64 or 128")
      ->check(CLI::IsMember({8, 16, 32, 64, 128}))
      ->capture_default_str();
  command.add_option("--ctx", core.context_tokens, "Tokens a request may have at most")
      ->check(positive)
      ->capture_default_str();
  command.add_option("--max-batch-tokens", core.token_budget, "Tokens computed in one step at most")
      ->check(positive)
      ->capture_default_str();
  command.add_option("--max-batch-rows", core.max_rows, "Requests that run at once at most")
      ->check(positive)
      ->capture_default_str();
  command.add_option("--watermark", core.watermark_blocks, "Blocks that admission keeps free; -1: 1 % of the pool")
      ->check(CLI::Range(-1, 1 << 24))
      ->capture_default_str();
  command.add_option("--queue-policy", core.queue_policy, "Which requests are served first")
      ->check(CLI::IsMember(as_strings(queue_policy_names())))
      ->capture_default_str();
  command.add_option("--victim-policy", core.victim_policy, "Which request gives up its memory when that runs out")
      ->check(CLI::IsMember(as_strings(victim_policy_names())))
      ->capture_default_str();
  command.add_option("--steps", core.step_composition, "What a step computes")
      ->check(CLI::IsMember(as_strings(step_composition_names())))
      ->capture_default_str();
  command.add_option("--max-sequence", options.max_sequence, "What systems reserve that reserve the longest sequence")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
}

void add_cost_flags(CLI::App& command, CostFlags& flags) {
  command
      .add_option(
          "--cost", flags.name,
          "How long steps take: opt-13b or yi-34b, published measurements of GPUs, or FILE[,MODEL[,GPUS]], a profile "
          "(docs/simulator.md)")
      ->capture_default_str();
  command
      .add_option("--roofline", flags.roofline,
                  "Instead of --cost: GB/s, T operations/s, billions of parameters, GB of weights")
      ->delimiter(',')
      ->expected(4)
      ->excludes(command.get_option("--cost"));
}

Result<std::shared_ptr<const CostModel>> make_cost(const CostFlags& flags) {
  if (flags.roofline.empty()) {
    auto cost = planning::open_cost_model(flags.name);
    if (!cost.ok()) return fail("--cost: ", cost.error().message);
    return cost;
  }
  for (double number : flags.roofline)
    if (!(number > 0 && number < 1e12)) return fail("--roofline: found ", number, ", wanted four numbers above 0");
  auto cost = std::make_shared<RooflineCost>();
  cost->bytes_per_second = flags.roofline[0] * 1e9;
  cost->operations_per_second = flags.roofline[1] * 1e12;
  cost->num_parameters = flags.roofline[2] * 1e9;
  cost->weight_bytes = flags.roofline[3] * 1e9;
  return std::shared_ptr<const CostModel>(std::move(cost));
}

}  // namespace quire::cli
