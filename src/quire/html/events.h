#pragma once
// What happened in a run, as plain data and as JSON lines; docs/events.md is the format. Simulations
// write it, `quire sim page` reads it from anybody; run_charts.h turns it into charts.
//
//     std::string text;
//     append_event(text, header);                       // first
//     append_event(text, StepEvent{.begin_ns = 0, ...});
//     QUIRE_TRY(const html::RunEvents run, html::read_events(text));
//
// Times are nanoseconds since the start of the run; memory is in slots, one for each token's K and V, so that managers
// with and without blocks can be compared. Thread-safety: functions of their arguments.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/result.h"
#include "quire/html/chart.h"

namespace quire::html {

inline constexpr std::int64_t kEventFormat = 1;
/// Counts and times are at most this, so that they are exact as doubles, in JavaScript too; 2^53 ns are 104 days.
inline constexpr std::int64_t kMaxEventNumber = std::int64_t{1} << 53;

/// The first line.
struct RunHeader {
  std::string name;  ///< of the contender, when several runs are compared
  std::string version, command;
  std::optional<std::uint64_t> seed;
  std::uint64_t total_slots = 0;      ///< of the pool
  std::uint64_t block_size = 0;       ///< slots of a block; 0: memory is not in blocks
  std::uint64_t max_step_tokens = 0;  ///< the token budget of a step; 0: none
  std::vector<std::pair<std::string, std::string>> options;
};

/// Where the pool's slots are. Shared ones count once. What is left is free.
struct SlotUse {
  std::uint64_t written = 0;   ///< hold K and V of a request
  std::uint64_t reserved = 0;  ///< held, to be written
  std::uint64_t unused = 0;    ///< held, and never written: the end of a last block, or of a request that ended early
  std::uint64_t rounding = 0;  ///< added by the allocator to what was asked for
  std::uint64_t cached = 0;    ///< free, with content that a request may find

  std::uint64_t held() const { return written + reserved + unused + rounding; }
};

struct StepEvent {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::uint64_t prefill_tokens = 0, decode_tokens = 0;  ///< computed
  std::uint64_t running = 0, waiting = 0;               ///< requests
  SlotUse slots;
};

enum class RequestEventKind : std::uint8_t {
  queued,   ///< tokens: of the prompt
  started,  ///< tokens: of the prompt, found in the prefix cache
  chunk,    ///< tokens: of the prompt, computed until end_ns
  first_token,
  preempted,  ///< detail: recompute or swap
  restored,   ///< has its K and V again at end_ns, after work that began at ns
  finished    ///< detail: the reason; tokens: generated
};

struct RequestEvent {
  RequestEventKind kind = RequestEventKind::queued;
  RequestId request;
  std::uint64_t ns = 0;
  std::uint64_t end_ns = 0;  ///< of chunk and restored only
  std::uint64_t tokens = 0;  ///< 0 where the kind has none
  std::string detail;
};

struct RunEvents {
  RunHeader header;
  std::vector<StepEvent> steps;        ///< in order of time
  std::vector<RequestEvent> requests;  ///< those of one request in order of time
  std::vector<BlockRun> blocks;
  std::uint64_t num_unknown = 0;  ///< lines of kinds that this version does not know
};

// One line each, with its line feed.
void append_event(std::string& out, const RunHeader& header);
void append_event(std::string& out, const StepEvent& step);
void append_event(std::string& out, const RequestEvent& event);
void append_event(std::string& out, const BlockRun& run);

/// Reads what append_event wrote, or something else did. An error names the line, the field, what was found and what
/// was wanted. Empty lines and unknown fields are passed over, lines of an unknown kind counted. Memory is linear in
/// the text.
Result<RunEvents> read_events(std::string_view text);

}  // namespace quire::html
