#include "quire/traces/trace_file.h"

#include <algorithm>

#include "quire/traces/json_traces.h"
#include "quire/workload/block_trace.h"

namespace quire {
namespace {

Result<Trace> read_agent_sessions(std::string_view file, const std::vector<TarMember>& members) {
  Trace trace;
  trace.format = "agent-sessions";
  trace.has_arrivals = true;
  std::uint64_t session = 0;
  for (const TarMember& member : members)
    if (member.name.ends_with(".json"))
      QUIRE_TRY_VOID(read_agent_session(cat(file, ", ", member.name), member.content, ++session, trace));
  if (trace.requests.empty()) return fail(file, ", row 1, column 1: the archive has no requests");
  std::stable_sort(trace.requests.begin(), trace.requests.end(),
                   [](const RequestSpec& a, const RequestSpec& b) { return a.arrival_ns < b.arrival_ns; });
  return trace;
}

Result<Trace> read_archive(std::string_view file, std::string_view bytes, const TraceFileOptions& options) {
  QUIRE_TRY(const auto members, read_tar(file, bytes));
  const bool is_servegen = std::any_of(members.begin(), members.end(), [](const TarMember& member) {
    return member.name.ends_with("-dataset.json") || member.name.ends_with("-trace.csv");
  });
  return is_servegen ? read_servegen(file, members, options.servegen) : read_agent_sessions(file, members);
}

}  // namespace

Result<Trace> read_trace(std::string_view name, std::string_view bytes, const TraceFileOptions& options) {
  QUIRE_TRY(const std::string text, unpack(name, bytes));
  const std::string_view all = text;
  const std::string_view start = all.substr(all.starts_with("\xEF\xBB\xBF") ? 3 : 0);
  if (looks_like_tar(all)) return read_archive(name, all, options);
  if (start.starts_with(kBlockTraceHead)) return read_block_trace(name, all);
  if (start.starts_with('{')) {
    const bool is_session = start.find('\n') == std::string_view::npos && start.find("\"requests\"") != start.npos;
    if (!is_session) return read_jsonl_trace(name, all);
    Trace trace;
    trace.format = "agent-sessions";
    trace.has_arrivals = true;
    QUIRE_TRY_VOID(read_agent_session(name, start, 1, trace));
    return trace;
  }
  return read_csv_trace(name, all, options.turns);
}

Result<Trace> open_trace(const std::string& path, const TraceFileOptions& options) {
  QUIRE_TRY(const std::string bytes, read_trace_bytes(path));
  return read_trace(path, bytes, options);
}

}  // namespace quire
