#include <algorithm>
#include <optional>

#include "quire/workload/numbers.h"
#include "quire/workload/trace.h"

namespace quire {
namespace {

enum class Role { arrival_s, arrival_ms, date, prompt, output, session };

struct KnownColumn {
  std::string_view name;
  Role role;
};
constexpr KnownColumn kColumns[] = {
    {"arrival_s", Role::arrival_s},       {"arrival_ms", Role::arrival_ms}, {"TIMESTAMP", Role::date},
    {"prompt_tokens", Role::prompt},      {"input_tokens", Role::prompt},   {"ContextTokens", Role::prompt},
    {"num_prefill_tokens", Role::prompt}, {"output_tokens", Role::output},  {"GeneratedTokens", Role::output},
    {"num_decode_tokens", Role::output},  {"session", Role::session},
};

struct Column {
  std::size_t index;
  std::string_view name;
  Role role;
};

struct Head {
  std::vector<std::string_view> names;
  std::optional<Column> arrival, prompt, output, session;
};

Result<Head> read_head(const TraceLines& lines, std::string_view line) {
  Head head;
  const auto names = head.names = split(line, ',');
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto known = std::find_if(std::begin(kColumns), std::end(kColumns),
                                    [&](const KnownColumn& column) { return column.name == names[i]; });
    if (known == std::end(kColumns)) continue;
    const bool is_arrival =
        known->role == Role::arrival_s || known->role == Role::arrival_ms || known->role == Role::date;
    auto& column = is_arrival                    ? head.arrival
                   : known->role == Role::prompt ? head.prompt
                   : known->role == Role::output ? head.output
                                                 : head.session;
    if (column)
      return trace_error({lines.file(), lines.row(), names[i]}, "means the same as column ", column->name,
                         ", wanted one of them");
    column = Column{i, known->name, known->role};
  }
  if (!head.prompt)
    return trace_error({lines.file(), lines.row(), "prompt_tokens"},
                       "is missing (or input_tokens, ContextTokens, num_prefill_tokens)");
  if (!head.output)
    return trace_error({lines.file(), lines.row(), "output_tokens"},
                       "is missing (or GeneratedTokens, num_decode_tokens)");
  return head;
}

/// Days since 1970-01-01 of a date of the Gregorian calendar.
std::int64_t days_from_date(std::int64_t year, std::int64_t month, std::int64_t day) {
  year -= month <= 2 ? 1 : 0;
  const std::int64_t era = year / 400, year_of_era = year - era * 400;
  const std::int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

/// "2023-11-16 18:15:46.6805900" as nanoseconds since 1970; up to nine decimals, or none.
std::optional<std::uint64_t> parse_date(std::string_view text) {
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || text[10] != ' ' || text[13] != ':' || text[16] != ':')
    return std::nullopt;
  const auto field = [&](std::size_t at, std::size_t size, std::int64_t low, std::int64_t high) {
    const auto value = parse_integer(text.substr(at, size));
    return value && *value >= low && *value <= high ? value : std::nullopt;
  };
  const auto year = field(0, 4, 1970, 2200), month = field(5, 2, 1, 12);
  if (!year || !month) return std::nullopt;
  const bool is_december = *month == 12;
  const std::int64_t days_of_month =
      days_from_date(*year + (is_december ? 1 : 0), is_december ? 1 : *month + 1, 1) - days_from_date(*year, *month, 1);
  const auto day = field(8, 2, 1, days_of_month);
  const auto hour = field(11, 2, 0, 23), minute = field(14, 2, 0, 59), second = field(17, 2, 0, 60);
  if (!day || !hour || !minute || !second) return std::nullopt;
  std::int64_t ns = 0;
  if (text.size() > 19) {
    const std::string_view decimals = text.substr(20);
    if (text[19] != '.' || decimals.empty() || decimals.size() > 9) return std::nullopt;
    for (char c : decimals) {
      if (c < '0' || c > '9') return std::nullopt;
      ns = ns * 10 + (c - '0');
    }
    for (std::size_t i = decimals.size(); i < 9; ++i) ns *= 10;
  }
  const std::int64_t seconds = ((days_from_date(*year, *month, *day) * 24 + *hour) * 60 + *minute) * 60 + *second;
  return static_cast<std::uint64_t>(seconds) * 1'000'000'000u + static_cast<std::uint64_t>(ns);
}

class CsvReader {
 public:
  CsvReader(std::string_view file, std::string_view text, CsvTurns turns)
      : lines_(file, text, trace_.notes), turns_(turns) {}

  Result<Trace> read() {
    std::string_view line;
    if (!lines_.next(line))
      return trace_error({lines_.file(), 1, "1"}, "the file is empty, wanted a head with columns");
    QUIRE_TRY(head_, read_head(lines_, line));
    trace_.has_arrivals = head_.arrival.has_value();
    trace_.format = head_.arrival && head_.arrival->role == Role::date ? "azure"
                    : turns_ == CsvTurns::by_length                    ? "sharegpt"
                                                                       : "csv";
    while (lines_.next(line)) QUIRE_TRY_VOID(read_row(line));
    if (trace_.requests.empty())
      return trace_error({lines_.file(), lines_.row() + 1, "1"}, "there is no row behind the head");
    return std::move(trace_);
  }

 private:
  TracePlace place(const Column& column) const { return {lines_.file(), lines_.row(), column.name}; }

  Result<void> read_row(std::string_view line) {
    const auto fields = split(line, ',');
    const std::size_t wanted = head_.names.size();
    if (fields.size() < wanted)
      return trace_error({lines_.file(), lines_.row(), head_.names[fields.size()]}, "is missing: found ", fields.size(),
                         " columns, wanted ", wanted);
    if (fields.size() > wanted)
      return trace_error({lines_.file(), lines_.row(), cat(wanted + 1)}, "found ", fields.size(), " columns, wanted ",
                         wanted);
    RequestSpec request;
    QUIRE_TRY(request.prompt_tokens, parse_length(place(*head_.prompt), fields[head_.prompt->index]));
    QUIRE_TRY(request.output_tokens, parse_length(place(*head_.output), fields[head_.output->index]));
    if (head_.arrival) {
      QUIRE_TRY(request.arrival_ns, read_arrival(fields[head_.arrival->index]));
    }
    if (head_.session) {
      QUIRE_TRY(const std::int32_t session, parse_length(place(*head_.session), fields[head_.session->index]));
      request.session = static_cast<std::uint64_t>(session);
    }
    if (turns_ == CsvTurns::by_length) {
      if (trace_.requests.empty() || request.prompt_tokens < last_total_) ++num_conversations_;
      request.session = num_conversations_;
      last_total_ = std::int64_t{request.prompt_tokens} + request.output_tokens;
    }
    trace_.requests.push_back(std::move(request));
    return {};
  }

  Result<std::uint64_t> read_arrival(std::string_view field) {
    std::uint64_t ns = 0;
    if (head_.arrival->role == Role::date) {
      const auto date = parse_date(field);
      if (!date)
        return trace_error(place(*head_.arrival), "found '", field.substr(0, 40),
                           "', wanted a time as 2023-11-16 18:15:46.6805900");
      if (trace_.requests.empty()) first_ns_ = *date;
      if (*date < first_ns_) return unsorted();
      ns = *date - first_ns_;
    } else {
      QUIRE_TRY(ns, parse_time(place(*head_.arrival), field, head_.arrival->role == Role::arrival_s ? 1e9 : 1e6));
    }
    if (!trace_.requests.empty() && ns < trace_.requests.back().arrival_ns) return unsorted();
    return ns;
  }

  Error unsorted() const {
    return trace_error(place(*head_.arrival), "is earlier than the row before, wanted rows in the order of arrival");
  }

  Trace trace_;
  TraceLines lines_;
  const CsvTurns turns_;
  Head head_;
  std::uint64_t first_ns_ = 0;
  std::uint64_t num_conversations_ = 0;
  std::int64_t last_total_ = 0;
};

}  // namespace

Result<Trace> read_csv_trace(std::string_view file, std::string_view text, CsvTurns turns) {
  return CsvReader(file, text, turns).read();
}

}  // namespace quire
