// What the kernel refuses to map costs the row that needs it, and no other; its request tries again.

#include <gtest/gtest.h>

#include "quire/attention/page_mapper.h"
#include "quire/engine/model_executor.h"
#include "quire/model/tiny_model.h"

namespace quire::engine {
namespace {

class RefusingMapper final : public attention::PageMapper {
 public:
  bool map(std::byte* at, std::size_t bytes, int pool, std::int64_t offset) override {
    return !(refuses_from <= offset) && PageMapper::map(at, bytes, pool, offset);
  }
  std::int64_t refuses_from = std::int64_t{1} << 60;  ///< offset in the pool
};

/// Two requests of three tokens, each in a place of its own with one page-group.
BatchPlan two_rows() {
  BatchPlan plan;
  plan.step = 1;
  for (std::int32_t i = 0; i < 2; ++i) {
    PlanRow row{.sequence = SequenceId{static_cast<std::uint64_t>(i + 1)},
                .request = RequestId{static_cast<std::uint64_t>(i + 1)},
                .num_tokens = 3,
                .token_offset = 3 * i,
                .logits_begin = 2,
                .samples = true,
                .is_prefill = true};
    row.place = i;
    plan.rows.push_back(row);
    plan.group_maps.push_back({i, 0, 1, BlockId{static_cast<std::uint32_t>(i + 1)}});
  }
  plan.tokens = {TokenId{1}, TokenId{2}, TokenId{3}, TokenId{4}, TokenId{5}, TokenId{6}};
  return plan;
}

struct Outcome {
  StepResult first, second;
};

std::vector<bool> refused(const StepResult& result) {
  std::vector<bool> rows;
  for (const RowResult& row : result.rows) rows.push_back(row.refused);
  return rows;
}

/// The plan, then a decode of both rows.
Outcome run(std::int64_t refuses_from) {
  const std::string image = model::build_tiny_model({}).build();
  auto file = model::GgufFile::parse(std::as_bytes(std::span(image.data(), image.size())));
  ThreadPool pool(1);
  model::LoadOptions options;
  options.max_context = options.max_batch_tokens = 64;
  options.max_logit_rows = 2;
  auto model = model::Model::load(*file, pool, options);
  RefusingMapper mapper;
  constexpr std::int64_t kGroup = 64 << 10;
  auto store = attention::VirtualKvStore::create(
      {{2, 2, 16, attention::kTileTokens, attention::KvType::f16}, kGroup, 2, 2, 64, &mapper});
  const model::LayerGrouping grouping = model::group_layers((*model)->config(), model::KvArrangement::uniform);
  ModelExecutor executor({**model, attention::KvMemory(**store), pool, CpuTier::scalar, grouping,
                          GroupGeometry(attention::kTileTokens, {LayerGroup{}}, 64), nullptr});
  GenerateRequest request;
  request.sampling.temperature = 0;
  for (std::uint64_t id : {1, 2}) executor.add(RequestId{id}, request, {});
  mapper.refuses_from = refuses_from;
  Outcome outcome;
  outcome.first = executor.execute(two_rows());
  BatchPlan next = two_rows();
  next.group_maps.clear();
  next.step = 2;
  next.tokens = {TokenId{7}, TokenId{8}};
  for (std::int32_t i = 0; i < 2; ++i) {
    PlanRow& row = next.rows[static_cast<std::size_t>(i)];
    row.begin = row.logits_begin = 3;
    row.num_tokens = 1;
    row.token_offset = i;
  }
  outcome.second = executor.execute(next);
  return outcome;
}

TEST(ModelExecutor, ARefusedMappingIsItsRowsAloneAndLeavesTheOthersBits) {
  constexpr std::int64_t kNever = std::int64_t{1} << 60;
  const Outcome all = run(kNever), one = run(64 << 10);  // the second page-group
  EXPECT_EQ(refused(all.first), (std::vector<bool>{false, false}));
  EXPECT_FALSE(all.first.rows[0].failed || all.first.rows[1].failed);
  EXPECT_EQ(refused(one.first), (std::vector<bool>{false, true}));
  EXPECT_EQ(one.first.rows[0], all.first.rows[0]);
  EXPECT_FALSE(one.first.rows[1].failed);
  EXPECT_EQ(one.second.rows[0], all.second.rows[0]);
  EXPECT_TRUE(one.second.rows[1].refused) << "it is tried again, and refused again";
}

TEST(ModelExecutor, IfEveryRowIsRefusedNothingIsComputed) {
  const Outcome none = run(0);
  EXPECT_EQ(refused(none.first), (std::vector<bool>{true, true}));
}

}  // namespace
}  // namespace quire::engine
