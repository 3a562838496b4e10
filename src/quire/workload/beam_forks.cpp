#include "quire/workload/beam_forks.h"

#include <algorithm>

#include "quire/base/cat.h"
#include "quire/workload/numbers.h"
#include "quire/workload/trace.h"

namespace quire {
namespace {

constexpr std::string_view kHead = "quire-beam-forks";
constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
static_assert(kDigits.size() == kMaxBeamForksWidth);

Result<void> read_parents(const TracePlace& place, std::string_view digits, BeamForks& search) {
  const auto width = static_cast<std::size_t>(search.width);
  if (digits.empty() || digits.size() % width != 0)
    return trace_error(place, "found ", digits.size(), " digits, wanted ", width, " for each step");
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const std::size_t digit = kDigits.find(digits[i]);
    if (digit >= width)
      return trace_error(place, "found '", digits.substr(i, 1), "' as digit ", i + 1, ", wanted a beam below ", width);
    search.parents.push_back(static_cast<std::uint8_t>(digit));
  }
  return {};
}

}  // namespace

Result<std::vector<BeamForks>> read_beam_forks(std::string_view file, std::string_view text) {
  std::vector<std::string> notes;
  TraceLines lines(file, text, notes);
  std::string_view line;
  if (!lines.next(line) || line != kHead) return trace_error({file, 1, "1"}, "wanted '", kHead, "'");
  std::vector<BeamForks> searches;
  while (lines.next(line)) {
    if (line.starts_with('#')) continue;
    const std::uint64_t row = lines.row();
    const auto fields = split(line, ' ');
    if (fields.size() != 4)
      return trace_error({file, row, cat(std::min<std::size_t>(fields.size(), 4) + 1)}, "found ", fields.size(),
                         " fields, wanted 4");
    BeamForks search;
    search.set = fields[0];
    const auto width = parse_integer(fields[1]);
    if (!width || *width < 2 || *width > kMaxBeamForksWidth)
      return trace_error({file, row, "2"}, "found '", fields[1].substr(0, 40), "', wanted 2 to ", kMaxBeamForksWidth,
                         " beams");
    search.width = static_cast<std::int32_t>(*width);
    QUIRE_TRY(search.prompt_tokens, parse_length({file, row, "3"}, fields[2]));
    QUIRE_TRY_VOID(read_parents({file, row, "4"}, fields[3], search));
    searches.push_back(std::move(search));
  }
  if (searches.empty()) return trace_error({file, lines.row() + 1, "1"}, "there is no search");
  return searches;
}

void append_beam_forks_head(std::string& out, const std::vector<std::string>& comments) {
  append_text(out, kHead);
  out += '\n';
  for (const std::string& comment : comments) out += cat("# ", comment, "\n");
}

void append_beam_forks(std::string& out, const BeamForks& search) {
  out += cat(search.set, " ", search.width, " ", search.prompt_tokens, " ");
  for (const std::uint8_t parent : search.parents) out += kDigits[parent];
  out += '\n';
}

}  // namespace quire
