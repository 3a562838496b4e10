#pragma once
// The command log: everything that entered a core, as bytes, enough to run it again.
//
// Format, version 10. All integers are little-endian; i32 and i64 are two's complement; f32 and f64 are their IEEE 754
// bits; a list is a u32 count, then the items; text is a list of bytes.
//
//     header   8 bytes "QUIRELOG", u32 version, then the options in the order of CoreOptions (i32 each, text for
//              names, u8 for the prefix cache and the files, i64 for bytes and rates, a list of i32 windows for the
//              layer groups)
//     record   u8 tag, then
//        1 submit   u64 id, list of i32 prompt, u8 has_max_tokens, i32 max_tokens, list of i32 stop tokens,
//                   i32 min_tokens, u8 has_logits_from, i32 logits_from, i32 priority, text salt, i32 num_branches,
//                   u8 has_beams, and if it has: i32 width, i32 num_returned, f64 length_penalty, u8 early_stopping
//        2 cancel   u64 id
//        3 finish   u64 id, i32 branch, u8 reason
//        4 plan     u64 step, u64 digest of the plan: what the core decided, for comparison
//        5 commit   u64 elapsed_ns, list of (i32 token, u8 outcome: 0 computed, 1 failed, 2 refused,
//                   list of candidates (i32 token, f32 logprob), list of i32 more)
//        6 files    list of 32-byte keys: block files that were found
//        7 transfer u64 transfer, u8 outcome, list of 32-byte keys of removed files
//
// Refused requests and cancels without effect are recorded too. A log may end after any record.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "quire/base/result.h"
#include "quire/core/executor.h"
#include "quire/kv/block_key.h"
#include "quire/sched/events.h"
#include "quire/sched/options.h"
#include "quire/sched/request.h"

namespace quire {

/// Receives the log of a running core, a few bytes at a time, on the core's thread. Writing them somewhere is outside.
class CommandSink {
 public:
  virtual ~CommandSink() = default;
  virtual void append(std::span<const std::byte> bytes) = 0;
};

/// A sink that keeps the log in memory.
class MemoryLog final : public CommandSink {
 public:
  void append(std::span<const std::byte> bytes) override { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

struct Replay {
  CoreOptions options;
  std::vector<std::uint64_t> plan_digests;        ///< one for each plan, as decided now
  std::vector<Event> events;                      ///< all of them
  std::uint64_t num_commands = 0;                 ///< all but plans and commits
  std::optional<std::uint64_t> first_difference;  ///< the step whose plan differs from the recorded one
  std::uint64_t recorded_digest = 0;              ///< of that step's recorded plan, if there is one
};

/// Runs a core from a recorded log. `sink` (may be null) receives the log of the new run, which is byte-equal to the
/// old one if and only if no plan differs. Ends at the first difference. An error says what in the bytes is wrong and
/// where. `identity` matters only if the recorded one's hash collided.
Result<Replay> replay(std::span<const std::byte> log, CommandSink* sink = nullptr, const CacheIdentity& identity = {});

/// What a log can be run on beside a core: whatever plans and commits as one does. The calls come as a core's do.
class ReplayTarget {
 public:
  virtual ~ReplayTarget() = default;
  virtual void submit(CoreRequest request) = 0;
  virtual void cancel(RequestId request) = 0;
  virtual void finish_branch(RequestId request, std::int32_t branch, FinishReason reason) = 0;
  virtual void note_files(const std::vector<BlockKey>& keys) = 0;
  virtual void end_transfer(const TransferEnd& end) = 0;
  virtual const BatchPlan& plan_step() = 0;
  virtual std::vector<Event> commit(const StepResult& result) = 0;
  virtual std::vector<Event> take_events() { return {}; }
};

/// The options of the core that wrote the log.
Result<CoreOptions> read_log_options(std::span<const std::byte> log);

/// Runs the log's records on the target, as replay() does; `options` of the result are the log's.
Result<Replay> replay_on(ReplayTarget& target, std::span<const std::byte> log);

}  // namespace quire
