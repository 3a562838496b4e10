#include "quire/planning/gpu_profile.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "quire/json/reader.h"
#include "quire/traces/bytes.h"
#include "quire/traces/json_traces.h"
#include "quire/workload/numbers.h"
#include "quire/workload/trace.h"

namespace quire::planning {
namespace {

using Cost = std::shared_ptr<const CostModel>;

constexpr double kMostMs = 1e9;

Result<FittedCost::Terms> read_terms(const json::Object& object, std::string_view path, std::string_view name) {
  json::ObjectReader reader(object, std::string(path));
  QUIRE_TRY(const json::Array* numbers, reader.required_array(name));
  std::array<double, 3> terms{};
  if (numbers->size() != terms.size())
    return fail("'", path, ".", name, "': found ", numbers->size(), " coefficients, wanted 3, in milliseconds");
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const auto number = (*numbers)[i].if_number();
    if (!number || !(*number > -kMostMs && *number < kMostMs))
      return fail("'", path, ".", name, "[", i, "]': found ", json::dump((*numbers)[i]).substr(0, 40),
                  ", wanted milliseconds");
    terms[i] = *number;
  }
  return FittedCost::Terms{terms[0], terms[1], terms[2]};
}

/// The member called `name`, or the only one if nothing is wanted.
Result<const json::Member*> choose(const json::Object& object, std::string_view name, std::string_view what) {
  std::string known;
  for (const json::Member& member : object) {
    if (member.key == name || (name.empty() && object.size() == 1)) return &member;
    known += cat(known.empty() ? "" : ", ", member.key);
  }
  return fail("found ", name.empty() ? "no choice" : cat("'", name, "'"), " of ", what, ", wanted one of ", known);
}

Result<Cost> read_fits(const json::Object& profile, std::string_view model, std::string_view gpus) {
  QUIRE_TRY(const json::Member* chosen, choose(profile, model, "a model"));
  QUIRE_TRY(const json::Object* by_gpus, json::read_object(chosen->value, chosen->key));
  QUIRE_TRY(const json::Member* fit, choose(*by_gpus, gpus, cat("GPUs for ", chosen->key)));
  const std::string path = cat(chosen->key, ".", fit->key);
  QUIRE_TRY(const json::Object* terms, json::read_object(fit->value, path));
  auto cost = std::make_shared<FittedCost>();
  cost->name = cat(chosen->key, " on ", fit->key, fit->key == "1" ? " GPU" : " GPUs");
  QUIRE_TRY(cost->prefill, read_terms(*terms, path, "prefill"));
  QUIRE_TRY(cost->decode, read_terms(*terms, path, "decoding_smallbs"));
  QUIRE_TRY(cost->decode_large, read_terms(*terms, path, "decoding_largebs"));
  json::ObjectReader reader(*terms, path);
  QUIRE_TRY(cost->threshold_rows, reader.required_int("decoding_large_small_bs_threshold", {.min = 1, .max = 1 << 20}));
  return Cost(std::move(cost));
}

/// Columns of the head, by place.
struct PointColumns {
  std::size_t prompt = 0, rows = 0, ms = 0, count = 0;
};

Result<PointColumns> read_head(std::string_view file, std::string_view line) {
  const auto names = split(line, ',');
  PointColumns columns{.count = names.size()};
  for (const auto& [name, place] : {std::pair("prompt_tokens", &columns.prompt),
                                    std::pair("decode_rows", &columns.rows), std::pair("ms", &columns.ms)}) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return trace_error({file, 1, name}, "is missing, wanted prompt_tokens, decode_rows, ms");
    *place = static_cast<std::size_t>(found - names.begin());
  }
  return columns;
}

Result<std::int64_t> read_count(const TracePlace& place, std::string_view field) {
  const auto count = parse_integer(field);
  if (!count || *count < 0 || *count > kMaxLength)
    return trace_error(place, "found '", field.substr(0, 40), "', wanted a whole number from 0 to ", kMaxLength);
  return *count;
}

Result<Cost> read_points(std::string_view file, std::string_view text) {
  std::vector<std::string> notes;
  TraceLines lines(file, text, notes);
  std::string_view line;
  if (!lines.next(line)) return trace_error({file, 1, "1"}, "the file is empty, wanted a head with columns");
  QUIRE_TRY(const PointColumns columns, read_head(file, line));
  auto cost = std::make_shared<TableCost>();
  cost->name = cat("points of ", file);
  while (lines.next(line)) {
    const auto fields = split(line, ',');
    const std::uint64_t row = lines.row();
    if (fields.size() != columns.count)
      return trace_error({file, row, cat(std::min(fields.size(), columns.count) + 1)}, "found ", fields.size(),
                         " columns, wanted ", columns.count);
    QUIRE_TRY(const auto prompt, read_count({file, row, "prompt_tokens"}, fields[columns.prompt]));
    QUIRE_TRY(const auto rows, read_count({file, row, "decode_rows"}, fields[columns.rows]));
    const auto ms = parse_number(fields[columns.ms]);
    if (!ms || !(*ms > 0 && *ms < kMostMs))
      return trace_error({file, row, "ms"}, "found '", fields[columns.ms].substr(0, 40),
                         "', wanted milliseconds above 0");
    if ((prompt == 0) == (rows == 0))
      return trace_error({file, row, "decode_rows"}, "found ", prompt, " tokens of prompts and ", rows,
                         " decodes, wanted steps of one of them");
    auto& points = prompt > 0 ? cost->prefill : cost->decode;
    const auto x = static_cast<double>(prompt > 0 ? prompt : rows);
    if (!points.empty() && x <= points.back().x)
      return trace_error({file, row, prompt > 0 ? "prompt_tokens" : "decode_rows"}, "found ", x, " behind ",
                         points.back().x, ", wanted more");
    points.push_back({x, *ms});
  }
  if (cost->prefill.empty() || cost->decode.empty())
    return trace_error({file, lines.row() + 1, cost->prefill.empty() ? "prompt_tokens" : "decode_rows"},
                       "no step has any, wanted steps of prompts and steps of decodes");
  return Cost(std::move(cost));
}

}  // namespace

Result<Cost> read_gpu_profile(std::string_view file, std::string_view text, std::string_view model,
                              std::string_view gpus) {
  if (!text.starts_with('{')) return read_points(file, text);
  auto value = json::parse(text);
  if (!value.ok()) return json_error(file, 1, value.error().message);
  QUIRE_TRY(const json::Object* profile, json::read_object(*value, file));
  auto cost = read_fits(*profile, model, gpus);
  if (!cost.ok()) return fail(file, ": ", cost.error().message);
  return cost;
}

Result<Cost> open_cost_model(std::string_view what) {
  auto named = make_cost_model(what);
  if (named.ok()) return named;
  const auto parts = split(what, ',');
  const std::string path(parts[0]);
  std::error_code error;
  if (parts.size() > 3 || !std::filesystem::is_regular_file(path, error))
    return fail(named.error().message, ", or a profile, FILE[,MODEL[,GPUS]]");
  QUIRE_TRY(const std::string text, read_trace_bytes(path));
  return read_gpu_profile(path, text, parts.size() > 1 ? parts[1] : "", parts.size() > 2 ? parts[2] : "");
}

}  // namespace quire::planning
