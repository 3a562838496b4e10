#include "quire/workload/block_trace.h"

#include "quire/base/checked.h"
#include "quire/workload/numbers.h"

namespace quire {
namespace {

Result<void> read_names(const TracePlace& place, std::string_view field, std::size_t num_wanted,
                        std::vector<std::uint64_t>& names) {
  const auto parts = split(field, '+');
  const auto first = parse_integer(parts[0]), count = parse_integer(parts.back());
  if (parts.size() != 2 || !first || !count || *first < 0 || *first > std::int64_t{1} << 60 || *count < 1 ||
      static_cast<std::uint64_t>(*count) > num_wanted - names.size())
    return trace_error(place, "found '", field.substr(0, 40), "', wanted a run of names as FIRST+COUNT, ",
                       num_wanted - names.size(), " of them left");
  for (std::int64_t i = 0; i < *count; ++i) names.push_back(static_cast<std::uint64_t>(*first + i));
  return {};
}

}  // namespace

Result<Trace> read_block_trace(std::string_view file, std::string_view text) {
  Trace trace;
  trace.format = "block-trace";
  trace.has_arrivals = true;
  TraceLines lines(file, text, trace.notes);
  std::string_view line;
  if (!lines.next(line) || !line.starts_with(kBlockTraceHead))
    return trace_error({file, 1, "1"}, "wanted '", kBlockTraceHead, "TOKENS'");
  QUIRE_TRY(const std::int32_t block_tokens, parse_length({file, 1, "2"}, line.substr(kBlockTraceHead.size())));
  std::uint64_t now_ns = 0;
  while (lines.next(line)) {
    const auto fields = split(line, ' ');
    const std::uint64_t row = lines.row();
    if (fields.size() < 4)
      return trace_error({file, row, cat(fields.size() + 1)}, "found ", fields.size(), " fields, wanted 4 or more");
    RequestSpec request;
    QUIRE_TRY(const std::uint64_t gap_ns, parse_time({file, row, "1"}, fields[0], 1e6));
    QUIRE_TRY(request.prompt_tokens, parse_length({file, row, "2"}, fields[1]));
    QUIRE_TRY(request.output_tokens, parse_length({file, row, "3"}, fields[2]));
    const auto sum = checked_add(now_ns, gap_ns);
    if (!sum || *sum > std::uint64_t{1} << 60)
      return trace_error({file, row, "1"}, "the trace is longer than 36 years");
    request.arrival_ns = now_ns = *sum;
    request.prefix_block_tokens = block_tokens;
    const auto num_names = static_cast<std::size_t>(ceil_div(request.prompt_tokens, block_tokens));
    for (std::size_t i = 3; i < fields.size(); ++i)
      QUIRE_TRY_VOID(read_names({file, row, cat(i + 1)}, fields[i], num_names, request.prefix_blocks));
    if (request.prefix_blocks.size() != num_names)
      return trace_error({file, row, "4"}, "found ", request.prefix_blocks.size(), " names of blocks, wanted ",
                         num_names);
    trace.requests.push_back(std::move(request));
  }
  if (trace.requests.empty()) return trace_error({file, lines.row() + 1, "1"}, "there is no request");
  return trace;
}

}  // namespace quire
