#include "quire/planning/what_if.h"

#include <algorithm>

#include "quire/base/cat.h"
#include "quire/sched/policy.h"

namespace quire::planning {
namespace {

using Change = std::function<void(engine::EngineOptions&)>;

class Rows {
 public:
  explicit Rows(const engine::EngineOptions& planned) : planned_(planned) {}
  void add(std::string setting, std::string flag, const Change& change) {
    engine::EngineOptions options = planned_;
    change(options);
    rows_.push_back({std::move(setting), std::move(flag), std::move(options)});
  }
  std::vector<WhatIf> take() { return std::move(rows_); }

 private:
  const engine::EngineOptions& planned_;
  std::vector<WhatIf> rows_;
};

void add_memory(Rows& rows, const engine::EngineOptions& planned, const engine::EngineInfo& info) {
  if (planned.kv_manager != "vattention")
    for (std::int64_t size : {16, 64})
      if (size != planned.block_size)
        rows.add("block size", cat("--block-size ", size), [size](auto& o) { o.block_size = size; });
  for (const char* type : {"f16", "int8"}) {
    const bool is_possible = std::string_view(type) != "int8" || planned.kv_manager != "vattention";
    if (planned.kv_type != type && is_possible && !planned.reference_arithmetic)
      rows.add("KV type", cat("--kv-type ", type), [type](auto& o) { o.kv_type = type; });
  }
  if (info.num_layer_groups > 1) rows.add("KV layout", "--kv-layout uniform", [](auto& o) { o.kv_layout = "uniform"; });
}

void add_scheduling(Rows& rows, const engine::EngineOptions& planned) {
  for (std::int64_t tokens : {planned.max_batch_tokens / 2, planned.max_batch_tokens * 2})
    if (tokens >= 16 && tokens <= 65536)
      rows.add("chunk", cat("--max-batch-tokens ", tokens), [tokens](auto& o) { o.max_batch_tokens = tokens; });
  for (std::int64_t count : {planned.max_batch_rows / 4, planned.max_batch_rows * 2})
    if (count >= 1 && count <= 65536)
      rows.add("requests at once", cat("--max-batch-rows ", count), [count](auto& o) { o.max_batch_rows = count; });
  for (const char* policy : {"fcfs", "shortest-prompt"})
    if (planned.queue_policy != policy)
      rows.add("queue policy", cat("--queue-policy ", policy), [policy](auto& o) { o.queue_policy = policy; });
}

void add_managers(Rows& rows, const engine::EngineOptions& planned) {
  const bool cached = planned.prefix_cache;
  if (planned.kv_ram_bytes == 0 && planned.kv_manager != "reserved")
    rows.add("prefix cache", cat("--prefix-cache ", cached ? "off" : "on"),
             [cached](auto& o) { o.prefix_cache = !cached; });
  for (const char* manager : {"paged", "vattention", "reserved"}) {
    const bool is_possible = planned.kv_ram_bytes == 0 && planned.kv_layout != "grouped" &&
                             planned.num_speculative_tokens == 0 &&
                             (std::string_view(manager) != "vattention" || planned.kv_type != "int8");
    if (planned.kv_manager != manager && is_possible)
      rows.add("manager", cat("--kv-manager ", manager), [manager](auto& o) {
        const engine::EngineOptions usual;
        o.kv_manager = manager;
        o.kv_page_group = usual.kv_page_group;  // which only vattention takes
        o.kv_max_mappings = usual.kv_max_mappings;
      });
  }
}

}  // namespace

std::vector<WhatIf> what_ifs(const engine::EngineOptions& planned, const engine::EngineInfo& info,
                             std::int64_t longest) {
  Rows rows(planned);
  add_memory(rows, planned, info);
  // Half the context stands there even if requests are longer, since the row says how many.
  for (std::int64_t context : {info.context / 2, info.context / 4})
    if (context >= 1 && (context >= longest || context == info.context / 2))
      rows.add("context", cat("--ctx ", context), [context](auto& o) { o.context = context; });
  add_scheduling(rows, planned);
  add_managers(rows, planned);
  return rows.take();
}

}  // namespace quire::planning
