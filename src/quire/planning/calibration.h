#pragma once
// Calibration: what steps cost on this machine with this model, measured by `quire calibrate` (planning/calibrate.h),
// kept as JSON together with the setting that it holds for.
//
//     QUIRE_TRY(const CalibrationSetting setting, describe_setting(engine_options));
//     QUIRE_TRY(const Calibration calibration, load_calibration(default_calibration_path(setting)));
//     QUIRE_TRY_VOID(check_setting(calibration.setting, setting));
//     simulate(system, *calibration.cost(), source);
//
// The file: {"format": "quire calibration", "version": 4, "setting": {...}, "cost": {...}, "measured": {...}}; all
// times are nanoseconds. A file that is cut, has other fields, or numbers that are not finite or negative where time
// cannot be, is refused with one line that names file, field, what was found and what was wanted; so is another
// version.
//
// Values; any thread may use them.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "quire/base/result.h"
#include "quire/engine/engine.h"
#include "quire/sim/calibrated_cost.h"

namespace quire::planning {

/// Everything that step times depend on beside the step. Two settings are the same if all fields are.
struct CalibrationSetting {
  std::string cpu;       ///< "AMD EPYC 9354"
  std::string cpu_tier;  ///< "avx2"
  std::int64_t threads = 0;
  std::string model;         ///< its name and format, for people: "SmolLM2 135M, Q4_1"
  std::string model_digest;  ///< hex, of the whole file (engine/cache_domain.h)
  std::string kv_type;       ///< "f16"
  std::int64_t block_size = 0;
  std::string quire_version;
  friend bool operator==(const CalibrationSetting&, const CalibrationSetting&) = default;
};

/// Of this machine with the model at options.model_path and these options; reads the file, but loads no weights.
Result<CalibrationSetting> describe_setting(const engine::EngineOptions& options);

/// An error names the first field that differs, what the file has and what is wanted.
Result<void> check_setting(const CalibrationSetting& found, const CalibrationSetting& wanted);

/// How well the cost fits what it was made from.
struct CalibrationFit {
  std::int64_t num_points = 0;  ///< shapes that were measured
  double median_error = 0;      ///< of the relative differences, without sign
  double p95_error = 0;
  /// Typical relative difference, without sign, of one short step and the median of its shape: what no prediction from
  /// shapes can know.
  double repeat_deviation = 0;
  double seconds = 0;  ///< that measuring took
  friend bool operator==(const CalibrationFit&, const CalibrationFit&) = default;
};

struct Calibration {
  CalibrationSetting setting;
  CalibratedCost fitted;
  CalibrationFit fit;

  std::shared_ptr<const CostModel> cost() const { return std::make_shared<CalibratedCost>(fitted); }
};

/// Of disturbance or median error: from here on the machine was visibly busy with other things while it was measured.
inline constexpr double kBusy = 0.05;
/// How steady the measured times were; from kBusy on with the advice to calibrate again.
std::string steadiness_text(const Calibration& calibration);

/// How reports call the cost model.
std::string cost_name(const CalibrationSetting& setting);

std::string as_json(const Calibration& calibration);
/// `name` is how errors call the text.
Result<Calibration> parse_calibration(std::string_view text, const std::string& name);

Result<Calibration> load_calibration(const std::string& path);
/// Creates the directory; the file appears whole or not at all.
Result<void> save_calibration(const Calibration& calibration, const std::string& path);

/// ${XDG_CACHE_HOME:-$HOME/.cache}/quire/calibrations/DIGEST.json, where DIGEST is of the whole setting: every setting
/// has a place of its own.
std::string default_calibration_path(const CalibrationSetting& setting);

}  // namespace quire::planning
