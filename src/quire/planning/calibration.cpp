#include "quire/planning/calibration.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "quire/base/cat.h"
#include "quire/json/json.h"
#include "quire/json/reader.h"
#include "quire/model/new_file.h"

namespace quire::planning {
namespace {

constexpr std::string_view kFormat = "quire calibration";
constexpr std::int64_t kVersion = 4;
constexpr double kMostNs = 1e15;  ///< of one step: eleven days
constexpr std::size_t kMaxPoints = 4096;

json::Array as_array(const CostCurve& curve) {
  json::Array points;
  for (const CostCurve::Point& point : curve.points) points.emplace_back(json::Array{point.x, point.ns});
  return points;
}

json::Object setting_object(const CalibrationSetting& setting) {
  return {{"cpu", setting.cpu},
          {"cpu_tier", setting.cpu_tier},
          {"threads", setting.threads},
          {"model", setting.model},
          {"model_digest", setting.model_digest},
          {"kv_type", setting.kv_type},
          {"block_size", setting.block_size},
          {"quire_version", setting.quire_version}};
}

json::Object interruptions_object(const Interruptions& interruptions) {
  json::Array lengths;
  for (double ns : interruptions.lengths_ns) lengths.emplace_back(ns);
  return {{"per_second", interruptions.per_second}, {"lengths", std::move(lengths)}};
}

json::Object cost_object(const CalibratedCost& cost) {
  json::Array remainder;
  for (double ns : cost.by_remainder) remainder.emplace_back(ns);
  return {{"by_tokens", as_array(cost.by_tokens)},
          {"by_remainder", std::move(remainder)},
          {"by_logits", as_array(cost.by_logits)},
          {"decode_row", cost.decode_row},
          {"decode_context", cost.decode_context},
          {"prefill_row", cost.prefill_row},
          {"prefill_square", cost.prefill_square},
          {"prefill_read", cost.prefill_read},
          {"lone_context", cost.lone_context},
          {"shared_context", cost.shared_context},
          {"shared_walk", cost.shared_walk},
          {"outside_step", cost.outside_step},
          {"outside_row", cost.outside_row},
          {"wake", cost.wake},
          {"interruptions", interruptions_object(cost.interruptions)}};
}

Result<double> required_number(json::ObjectReader& reader, std::string_view name, json::NumberRange range) {
  QUIRE_TRY(const std::optional<double> number, reader.optional_number(name, range));
  if (number) return *number;
  return json::field_error(reader.path_of(name), "is missing; wanted a number");
}

Result<double> nanoseconds(json::ObjectReader& reader, std::string_view name) {
  return required_number(reader, name, {.min = 0, .max = kMostNs});
}

Result<CostCurve> read_curve(json::ObjectReader& reader, std::string_view name) {
  QUIRE_TRY(const json::Array* items, reader.required_array(name, kMaxPoints));
  CostCurve curve;
  for (std::size_t i = 0; i < items->size(); ++i) {
    const std::string path = reader.path_of(name, i);
    QUIRE_TRY(const json::Array* pair, json::read_array((*items)[i], path));
    if (pair->size() != 2) return json::field_error(path, cat("found ", pair->size(), " items, wanted [x, ns]"));
    QUIRE_TRY(const double x, json::read_number((*pair)[0], path, {.min = 0, .max = 1e9}));
    QUIRE_TRY(const double ns, json::read_number((*pair)[1], path, {.min = 0, .max = kMostNs}));
    if (!curve.points.empty() && x <= curve.points.back().x)
      return json::field_error(path, cat("found x = ", x, " after ", curve.points.back().x, ", wanted rising ones"));
    curve.points.push_back({x, ns});
  }
  if (curve.points.empty()) return json::field_error(reader.path_of(name), "found no points, wanted at least one");
  return curve;
}

Result<void> read_remainder(json::ObjectReader& reader, CalibratedCost& cost) {
  QUIRE_TRY(const json::Array* items, reader.required_array("by_remainder"));
  if (items->size() != cost.by_remainder.size())
    return json::field_error(reader.path_of("by_remainder"),
                             cat("found ", items->size(), " items, wanted ", cost.by_remainder.size()));
  // What a few tokens beyond a multiple take may be less than the line between the multiples has.
  for (std::size_t i = 0; i < items->size(); ++i) {
    QUIRE_TRY(cost.by_remainder[i],
              json::read_number((*items)[i], reader.path_of("by_remainder", i), {.min = -kMostNs, .max = kMostNs}));
  }
  return {};
}

Result<CalibrationSetting> read_setting(const json::Object& object) {
  json::ObjectReader reader(object, "setting");
  CalibrationSetting setting;
  const auto text = [&](std::string_view name, std::string& value) -> Result<void> {
    QUIRE_TRY(value, reader.required_string(name, 4096));
    return {};
  };
  QUIRE_TRY_VOID(text("cpu", setting.cpu));
  QUIRE_TRY_VOID(text("cpu_tier", setting.cpu_tier));
  QUIRE_TRY_VOID(text("model", setting.model));
  QUIRE_TRY_VOID(text("model_digest", setting.model_digest));
  QUIRE_TRY_VOID(text("kv_type", setting.kv_type));
  QUIRE_TRY_VOID(text("quire_version", setting.quire_version));
  QUIRE_TRY(setting.threads, reader.required_int("threads", {1, 1024}));
  QUIRE_TRY(setting.block_size, reader.required_int("block_size", {1, 1024}));
  QUIRE_TRY_VOID(reader.refuse_unknown());
  return setting;
}

Result<Interruptions> read_interruptions(const json::Object& object) {
  json::ObjectReader reader(object, "cost.interruptions");
  Interruptions interruptions;
  QUIRE_TRY(interruptions.per_second, required_number(reader, "per_second", {.min = 0, .max = 1e6}));
  QUIRE_TRY(const json::Array* lengths, reader.required_array("lengths", kMaxPoints));
  for (std::size_t i = 0; i < lengths->size(); ++i) {
    QUIRE_TRY(const double ns,
              json::read_number((*lengths)[i], reader.path_of("lengths", i), {.min = 0, .max = kMostNs}));
    interruptions.lengths_ns.push_back(ns);
  }
  QUIRE_TRY_VOID(reader.refuse_unknown());
  return interruptions;
}

Result<CalibratedCost> read_cost(const json::Object& object) {
  json::ObjectReader reader(object, "cost");
  CalibratedCost cost;
  QUIRE_TRY(cost.by_tokens, read_curve(reader, "by_tokens"));
  QUIRE_TRY_VOID(read_remainder(reader, cost));
  QUIRE_TRY(cost.by_logits, read_curve(reader, "by_logits"));
  QUIRE_TRY(cost.decode_row, nanoseconds(reader, "decode_row"));
  QUIRE_TRY(cost.decode_context, nanoseconds(reader, "decode_context"));
  QUIRE_TRY(cost.prefill_row, nanoseconds(reader, "prefill_row"));
  QUIRE_TRY(cost.prefill_square, nanoseconds(reader, "prefill_square"));
  QUIRE_TRY(cost.prefill_read, nanoseconds(reader, "prefill_read"));
  QUIRE_TRY(cost.lone_context, nanoseconds(reader, "lone_context"));
  QUIRE_TRY(cost.shared_context, nanoseconds(reader, "shared_context"));
  QUIRE_TRY(cost.shared_walk, nanoseconds(reader, "shared_walk"));
  QUIRE_TRY(cost.wake, nanoseconds(reader, "wake"));
  QUIRE_TRY(cost.outside_step, nanoseconds(reader, "outside_step"));
  QUIRE_TRY(cost.outside_row, nanoseconds(reader, "outside_row"));
  QUIRE_TRY(const json::Object* interruptions, reader.required_object("interruptions"));
  QUIRE_TRY(cost.interruptions, read_interruptions(*interruptions));
  QUIRE_TRY_VOID(reader.refuse_unknown());
  return cost;
}

Result<CalibrationFit> read_fit(const json::Object& object) {
  json::ObjectReader reader(object, "measured");
  CalibrationFit fit;
  QUIRE_TRY(fit.num_points, reader.required_int("num_points", {0, 1'000'000}));
  QUIRE_TRY(fit.median_error, required_number(reader, "median_error", {.min = 0}));
  QUIRE_TRY(fit.p95_error, required_number(reader, "p95_error", {.min = 0}));
  QUIRE_TRY(fit.repeat_deviation, required_number(reader, "repeat_deviation", {.min = 0}));
  QUIRE_TRY(fit.seconds, required_number(reader, "seconds", {.min = 0}));
  QUIRE_TRY_VOID(reader.refuse_unknown());
  return fit;
}

Result<Calibration> read_calibration(std::string_view text) {
  QUIRE_TRY(const json::Value value, json::parse(text, {.max_bytes = std::size_t{1} << 20}));
  if (!value.is_object()) return fail("found ", json::kind_name(value.kind()), ", wanted an object");
  json::ObjectReader reader(value.as_object());
  QUIRE_TRY(const std::string_view format, reader.required_string("format"));
  if (format != kFormat) return json::field_error("format", cat("found '", format, "', wanted '", kFormat, "'"));
  QUIRE_TRY(const std::int64_t version, reader.required_int("version"));
  if (version != kVersion)
    return json::field_error("version",
                             cat("found ", version, ", wanted ", kVersion, "; `quire calibrate` makes a new one"));
  Calibration calibration;
  QUIRE_TRY(const json::Object* setting, reader.required_object("setting"));
  QUIRE_TRY(calibration.setting, read_setting(*setting));
  QUIRE_TRY(const json::Object* cost, reader.required_object("cost"));
  QUIRE_TRY(calibration.fitted, read_cost(*cost));
  QUIRE_TRY(const json::Object* measured, reader.required_object("measured"));
  QUIRE_TRY(calibration.fit, read_fit(*measured));
  QUIRE_TRY_VOID(reader.refuse_unknown());
  calibration.fitted.name = cost_name(calibration.setting);
  return calibration;
}

}  // namespace

std::string cost_name(const CalibrationSetting& setting) {
  return cat("calibrated: ", setting.model, ", ", setting.cpu, ", ", setting.threads,
             setting.threads == 1 ? " thread, " : " threads, ", setting.cpu_tier, ", KV ", setting.kv_type);
}

std::string steadiness_text(const Calibration& calibration) {
  const double disturbance = calibration.fitted.interruptions.share(), error = calibration.fit.median_error;
  const auto percent = [](double share) {
    const auto per_mille = static_cast<std::int64_t>(std::clamp(share, 0.0, 1e6) * 1000 + 0.5);
    return cat(per_mille / 10, ".", per_mille % 10, " %");
  };
  const std::string text =
      cat("while calibrating, steps took ", percent(disturbance),
          " longer on average than typically, single ones differed by ", percent(calibration.fit.repeat_deviation),
          ", and they fit with a median error of ", percent(error));
  const bool was_busy = disturbance >= kBusy || error >= kBusy;
  return was_busy ? cat(text, ": the machine was busy; run `quire calibrate` again when it is quiet") : text;
}

std::string as_json(const Calibration& calibration) {
  const CalibrationFit& fit = calibration.fit;
  const json::Object object{{"format", kFormat},
                            {"version", kVersion},
                            {"setting", setting_object(calibration.setting)},
                            {"cost", cost_object(calibration.fitted)},
                            {"measured", json::Object{{"num_points", fit.num_points},
                                                      {"median_error", fit.median_error},
                                                      {"p95_error", fit.p95_error},
                                                      {"repeat_deviation", fit.repeat_deviation},
                                                      {"seconds", fit.seconds}}}};
  return json::dump(object, {.indent = 2}) + "\n";
}

Result<Calibration> parse_calibration(std::string_view text, const std::string& name) {
  auto calibration = read_calibration(text);
  if (!calibration.ok()) return fail("calibration '", name, "': ", calibration.error().message);
  return calibration;
}

Result<Calibration> load_calibration(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    return fail("calibration '", path, "' cannot be read: ", std::strerror(errno), "; `quire calibrate` makes one");
  return parse_calibration(text.str(), path);
}

Result<void> save_calibration(const Calibration& calibration, const std::string& path) {
  std::error_code error;
  const auto directory = std::filesystem::path(path).parent_path();
  if (!directory.empty()) std::filesystem::create_directories(directory, error);
  if (error) return fail("directory '", directory.string(), "' cannot be created: ", error.message());
  QUIRE_TRY(model::NewFile file, model::NewFile::create(path, model::Existing::replace));
  const std::string text = as_json(calibration);
  QUIRE_TRY_VOID(file.write(std::as_bytes(std::span(text.data(), text.size()))));
  return file.keep();
}

}  // namespace quire::planning
