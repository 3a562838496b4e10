#include "quire/workload/trace.h"

#include "quire/workload/numbers.h"

namespace quire {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr double kMaxNs = 1e18;

/// What was found, short enough for a line.
std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 40;
  std::string out = "'";
  for (char c : text.substr(0, kMost)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > kMost ? "...'" : "'");
}

}  // namespace

std::string to_string(const TracePlace& place) {
  return cat(place.file, ", row ", place.row, ", column ", place.column);
}

Result<std::int32_t> parse_length(const TracePlace& place, std::string_view text) {
  const auto value = parse_integer(text);
  if (!value || *value < 1 || *value > kMaxLength)
    return trace_error(place, "found ", shown(text), ", wanted a whole number from 1 to ", kMaxLength);
  return static_cast<std::int32_t>(*value);
}

Result<std::uint64_t> parse_time(const TracePlace& place, std::string_view text, double unit_ns) {
  const auto value = parse_number(text);
  if (!value || !(*value >= 0) || *value * unit_ns > kMaxNs)
    return trace_error(place, "found ", shown(text), ", wanted a time from 0 to 1000000000 s");
  return static_cast<std::uint64_t>(*value * unit_ns + 0.5);
}

TraceLines::TraceLines(std::string_view file, std::string_view text, std::vector<std::string>& notes)
    : file_(file), text_(text), notes_(notes) {
  if (!text_.starts_with(kByteOrderMark)) return;
  text_.remove_prefix(kByteOrderMark.size());
  notes_.push_back(cat(file, ", row 1, column 1: begins with a byte-order mark, which was left out"));
}

bool TraceLines::next(std::string_view& line) {
  if (text_.empty()) return false;
  ++row_;
  const std::size_t end = text_.find('\n');
  line = text_.substr(0, end);
  text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
  if (line.ends_with('\r')) {
    line.remove_suffix(1);
    if (!noted_cr_) notes_.push_back(cat(file_, ", row ", row_, ", column ", line.size() + 1, ": lines end in CR LF"));
    noted_cr_ = true;
  }
  return true;
}

}  // namespace quire
