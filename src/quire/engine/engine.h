#pragma once
// Engine: a loaded model with its paged KV cache, serving many requests at once by continuous batching. This is the
// library's front door: open a model, submit token ids, receive deltas.
//
//   auto engine = Engine::open({.model_path = "model.gguf"});
//   auto id = (*engine)->submit(request, [](Delta delta) { ... });
//
// Thread-safety: all methods may be called from any thread. Callbacks run on the engine's thread: they must be quick
// and must not call back into submit() or cancel() while holding a lock that another caller of the engine holds.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/cpu.h"
#include "quire/base/result.h"
#include "quire/engine/request.h"
#include "quire/kv/kv_manager.h"
#include "quire/model/repack_cache.h"
#include "quire/sched/ngram_proposer.h"
#include "quire/sched/preemption.h"

namespace quire {
class Tokenizer;
class ChatTemplate;
}  // namespace quire

namespace quire::engine {

inline constexpr std::int64_t kMaxBatch = 65536;  ///< tokens or rows of a step at most
inline constexpr std::int64_t kMaxWaiting = 1'000'000;

struct EngineOptions {
  std::string model_path;
  int threads = 0;                      ///< 0: all cores this process may use
  std::int64_t context = 0;             ///< tokens a request may have at most; 0: the model's own
  std::uint64_t kv_memory_bytes = 0;    ///< 0: a share of the memory that the machine or the cgroup has free
  std::string kv_type = "f16";          ///< f16, bf16, int8 or f32
  std::int64_t block_size = 16;         ///< 8, 16, 32, 64 or 128 tokens
  std::string kv_layout;                ///< grouped: memory behind sliding windows is given back; uniform: it is not;
                                        ///< empty: grouped; other managers than paged: uniform
  std::int64_t max_batch_tokens = 512;  ///< tokens computed in one step; 1 to kMaxBatch
  std::int64_t max_batch_rows = 256;    ///< requests that run at once; 1 to kMaxBatch
  std::int64_t max_waiting = 1024;      ///< requests in the queue; one more is refused; 1 to kMaxWaiting
  std::int64_t max_queue_ms = 0;        ///< a request may wait for its first step at most so long; 0: any time
  std::string cpu_tier;                 ///< empty: the best; else as QUIRE_CPU
  bool prefix_cache = true;             ///< find and share prompt prefixes that were computed before
  std::string repack_cache_dir;         ///< where packed weights are kept for the next start; empty: nowhere
  /// paged; vattention: contiguous KV, mapped on demand; reserved: the whole context for every sequence, nothing
  /// shared, for comparison.
  std::string kv_manager = "paged";
  std::int64_t kv_page_group = 256 << 10;  ///< vattention only: bytes mapped at a time, 64 KiB to 2 MiB, a power of two
  std::int32_t kv_max_mappings =
      64'000;                            ///< vattention only: of the process; Linux allows 65,530 unless told otherwise
  bool reference_arithmetic = false;     ///< f32 weights, activations and KV (QUIRE_TEST_F32=1)
  std::string command_log;               ///< a file to which the core's commands are written; empty: none
  std::function<void(double)> progress;  ///< the fraction loaded; from the opening thread
  /// A line for each preemption: what became of the content, and by which numbers. From the engine's thread.
  std::function<void(const std::string&)> log_line;

  /// Who is served first, and who gives up memory when it runs out; sched/policy.h has the names.
  std::string queue_policy = "fcfs", victim_policy = "latest-arrived";

  /// Speculative decoding (sched/ngram_proposer.h): tokens proposed for an answer in a step at most, 0 to
  /// kMaxSpeculativeTokens; 0: off. With kv_manager paged. Answers are the same, bit for bit.
  std::int32_t num_speculative_tokens = 0;
  NgramMatch ngram;

  /// KV tiers behind the pool (kv/kv_tiers.h); they need the prefix cache. What becomes of a victim's content:
  /// sched/preemption.h.
  std::uint64_t kv_ram_bytes = 0;                        ///< of the RAM tier; 0: none
  std::string kv_swap_dir;                               ///< directory of block files; empty: none. Needs kv_ram_bytes
  std::uint64_t kv_swap_bytes = std::uint64_t{4} << 30;  ///< of all block files
  bool kv_swap_compression = false;                      ///< block files in zstd
  std::string preemption = "auto";                       ///< auto, swap or recompute
};

/// What was loaded and chosen; for the start-up summary and GET /v1/models.
struct EngineInfo {
  std::string model_name, architecture, quantization, model_path;
  std::uint64_t file_bytes = 0;
  std::int64_t num_parameters = 0, num_layers = 0, vocab_size = 0;
  std::int64_t model_context = 0, context = 0;
  int threads = 0;
  CpuTier cpu_tier = CpuTier::scalar;
  std::string cpu_tier_why;
  std::string kv_type;
  std::int64_t block_size = 0, num_blocks = 0;
  std::string kv_layout;              ///< "uniform" also where all layers are alike
  std::int64_t num_layer_groups = 0;  ///< a block holds the tokens of one of them
  std::int64_t layers_per_group = 0;
  std::int64_t kv_bytes_per_token = 0;  ///< in all groups; windows give a part of it back
  std::int64_t blocks_per_request = 0;  ///< the most that a request of full context holds at once
  std::string kv_manager;
  std::int64_t page_group_bytes = 0;  ///< vattention, whose blocks these are; else 0
  std::int64_t kv_tokens = 0;         ///< longest request that the pool can hold
  double load_seconds = 0;            ///< from open() to here
  double weights_seconds = 0;         ///< of these: packing the weights, or mapping packed ones
  model::RepackReport repack;         ///< where packed weights came from
  std::uint64_t weight_bytes = 0, kv_bytes = 0, scratch_bytes = 0;
  std::uint64_t kv_store_bytes = 0;     ///< kv_bytes and what the store adds: the null block, padding
  std::uint64_t free_memory_bytes = 0;  ///< when the engine was opened
  std::string kv_memory_why;            ///< how kv_bytes was chosen
  std::int64_t max_batch_tokens = 0, max_batch_rows = 0;
  bool prefix_cache = false;
  std::uint64_t kv_ram_bytes = 0;  ///< of the RAM tier; 0: there is none
  std::int64_t kv_ram_blocks = 0;  ///< that it holds
  std::string kv_swap_dir;         ///< empty: no files
  std::uint64_t kv_swap_bytes = 0;
  std::int64_t kv_swap_files_found = 0;  ///< blocks that an earlier process has left
  std::string preemption;
  std::string chat_template_fault;  ///< why the file's chat template cannot be used; empty: there is none, or it can
};

/// KV memory beyond the block counts of EngineStats; for reports.
struct KvStats {
  std::string manager;  ///< the memory manager's name
  bool prefix_cache = false;
  std::int64_t block_size = 0, block_bytes = 0;
  std::int64_t table_entries = 0;       ///< blocks held, counted for every sequence that holds them
  std::int64_t unfilled_slots = 0;      ///< of used blocks
  std::int64_t preempted = 0;           ///< requests that wait to resume
  std::uint64_t copied_blocks = 0;      ///< copy-on-write, and partly cached blocks
  std::uint64_t recomputed_tokens = 0;  ///< positions computed again after a preemption
  std::array<std::uint64_t, kNumPreemptionKinds> preemptions_by{};  ///< by PreemptionKind
  KvTierCounters tiers;
  std::uint64_t ram_bytes = 0, file_bytes = 0;  ///< of the RAM tier; of all block files

  // vattention, whose blocks are page-groups; else 0.
  std::int64_t spare_blocks = 0;     ///< mapped, but held by nobody: left by ended requests, or mapped ahead
  std::int64_t unmapped_blocks = 0;  ///< mapped nowhere
  std::int64_t mappings = 0;         ///< of the process, at most
  std::uint64_t maps = 0, unmaps = 0, ahead_maps = 0, refused_maps = 0;  ///< system calls; refused by the kernel
};

/// A snapshot for metrics. Counters only rise.
struct EngineStats {
  std::int64_t running = 0, waiting = 0;
  std::int64_t blocks_used = 0, blocks_total = 0;
  std::int64_t blocks_cached = 0;  ///< not used, with content that a request may find
  std::uint64_t steps = 0, prompt_tokens = 0, generated_tokens = 0, preemptions = 0;
  std::uint64_t finished_stop = 0, finished_length = 0, finished_cancelled = 0, finished_timed_out = 0,
                finished_failed = 0, refused = 0;
  std::uint64_t computed_tokens = 0;                  ///< of all steps, proposals included
  std::uint64_t proposed_tokens = 0;                  ///< speculative decoding: tokens proposed,
  std::uint64_t accepted_tokens = 0;                  ///< and such as came true
  std::uint64_t prefix_queries = 0, prefix_hits = 0;  ///< tokens looked up in the prefix cache, and found
  std::uint64_t prefix_evictions = 0;                 ///< cached blocks given up for new content
  std::uint64_t step_ns = 0;                          ///< time spent in steps
  /// Positions of all layers that attention walked once for several sequences, and what they would be if each walked
  /// its own (attention/shared_spans.h).
  std::int64_t shared_positions = 0, unshared_positions = 0;
  KvStats kv;
  std::uint64_t plan_digest = 0;  ///< over all plans so far: equal for equal command logs
};

/// Why a request was not taken.
struct Refusal {
  enum class Kind {
    invalid,     ///< it could never run here: a bad value, or too long; the message has the numbers
    overloaded,  ///< the queue is full; try later
    stopping,    ///< the engine is draining
  } kind = Kind::invalid;
  std::string message;
  std::string field;  ///< the field of GenerateRequest at fault, may be empty
};

struct Submitted {
  std::optional<RequestId> id;
  Refusal refusal;  ///< if there is no id
};

using Callback = std::function<void(Delta)>;

/// One of several requests that are submitted together.
struct Submission {
  GenerateRequest request;
  Callback callback;
};

struct SubmittedAll {
  std::vector<RequestId> ids;  ///< in the order of the submissions; empty: refused
  Refusal refusal;             ///< of the first at fault, if there are no ids
};

class Engine {
 public:
  using Callback = engine::Callback;

  static Result<std::unique_ptr<Engine>> open(EngineOptions options);
  ~Engine();  ///< cancels what is left and joins the engine's thread

  const EngineInfo& info() const;
  const Tokenizer& tokenizer() const;
  /// Null if the model file has none, or one that cannot be used (info().chat_template_fault).
  const ChatTemplate* chat_template() const;

  /// Takes the request or refuses it at once. Deltas follow on the engine's thread, the last one with `finish`.
  Submitted submit(GenerateRequest request, Callback callback);
  /// All of them or none, at least one. They arrive together: a step that sees one of them sees all.
  SubmittedAll submit_all(std::vector<Submission> submissions);
  /// Ends the request at the next step boundary, with a last delta (`cancelled`). Unknown or ended ids are ignored.
  void cancel(RequestId id);

  /// No new requests from now on; those in flight go on.
  void stop_accepting();
  /// Waits until nothing is in flight, or the deadline has passed; true if idle.
  bool wait_idle(std::uint64_t timeout_ms);

  EngineStats stats() const;

 private:
  struct State;
  static Result<void> open_tiers(const EngineOptions& options, State& state);
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace quire::engine
