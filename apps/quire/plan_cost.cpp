// Which cost model a plan is made with.

#include <filesystem>
#include <utility>

#include "plan.h"
#include "quire/engine/memory.h"
#include "quire/planning/calibration.h"
#include "quire/planning/cost_parts.h"
#include "quire/planning/gpu_profile.h"

namespace quire::cli {
namespace {

using planning::Calibration;
using planning::CalibrationSetting;

/// At worst, where nothing waits for memory, reading int8 takes a fifth longer (attention/kv_store.h).
constexpr double kInt8Decodes = 1.2;

planning::MakeCost fixed_cost(std::shared_ptr<const CostModel> model) {
  return [model = std::move(model)](const planning::Fit&) -> Result<planning::Cost> {
    return planning::Cost{model, ""};
  };
}

/// Of the model in the file: what it reads and computes comes from the plan.
Result<planning::MakeCost> roofline_cost(const std::vector<double>& figures) {
  for (double number : figures)
    if (!(number >= 0 && number < 1e12) || figures[0] <= 0 || figures[1] <= 0)
      return fail("--roofline: found ", number, ", wanted GB/s and T operations/s above 0, and ms of 0 or more");
  return planning::MakeCost([figures](const planning::Fit& fit) -> Result<planning::Cost> {
    auto cost = std::make_shared<RooflineCost>();
    cost->bytes_per_second = figures[0] * 1e9;
    cost->operations_per_second = figures[1] * 1e12;
    cost->overhead_ms = figures.size() > 2 ? figures[2] : 0;
    cost->num_parameters = static_cast<double>(fit.info.num_parameters);
    cost->weight_bytes = static_cast<double>(fit.info.weight_bytes);
    cost->kv_bytes_per_token = static_cast<double>(fit.info.kv_bytes_per_token);
    return planning::Cost{std::move(cost), "a roofline is a bound: real steps take longer"};
  });
}

/// The calibration of the settings that the plan differs in, if there is one; else the one at hand, with a note.
planning::MakeCost calibrated_cost(Calibration calibration, bool may_look) {
  return [calibration = std::move(calibration), may_look](const planning::Fit& fit) -> Result<planning::Cost> {
    CalibrationSetting wanted = calibration.setting;
    wanted.kv_type = fit.info.kv_type;
    wanted.block_size = fit.info.page_group_bytes > 0 ? calibration.setting.block_size : fit.info.block_size;
    const std::string steadiness = planning::steadiness_text(calibration);
    if (wanted == calibration.setting) return planning::Cost{calibration.cost(), steadiness};
    if (may_look) {
      auto other = planning::load_calibration(planning::default_calibration_path(wanted));
      if (other.ok() && other->setting == wanted)
        return planning::Cost{other->cost(), planning::steadiness_text(*other)};
    }
    const bool turns_int8 = wanted.kv_type == "int8" && calibration.setting.kv_type != "int8";
    if (!turns_int8) return planning::Cost{calibration.cost(), steadiness};
    return planning::Cost{planning::scaled_cost(calibration.cost(), 1, kInt8Decodes),
                          "decodes taken as a fifth longer; quire calibrate --kv-type int8 measures it"};
  };
}

/// False where no `quire calibrate` has ever been, so that nothing need be hashed.
bool has_calibrations() {
  const std::filesystem::path path = planning::default_calibration_path({});
  std::error_code error;
  return std::filesystem::is_directory(path.parent_path(), error) &&
         !std::filesystem::is_empty(path.parent_path(), error);
}

}  // namespace

Result<planning::MakeCost> choose_cost(const PlanFlags& flags, std::string& why) {
  if (!flags.roofline.empty()) return roofline_cost(flags.roofline);
  if (!flags.cost_name.empty()) {
    auto cost = planning::open_cost_model(flags.cost_name);
    if (!cost.ok()) return fail("--cost: ", cost.error().message);
    return fixed_cost(*std::move(cost));
  }
  if (!flags.calibration_path.empty()) {
    auto calibration = planning::load_calibration(flags.calibration_path);
    if (!calibration.ok()) return fail("--calibration: ", calibration.error().message);
    return calibrated_cost(*std::move(calibration), false);
  }
  why = cat("not calibrated: run `quire calibrate ", flags.engine.model_path,
            "`, or give --roofline GB/S,TOPS for the machine that you plan for");
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(flags.engine.model_path, error);
  // What does not fit into this machine has not been calibrated on it, and need not be read to know that.
  if (error || !has_calibrations() || size > engine::free_memory().bytes) return planning::MakeCost();
  QUIRE_TRY(const CalibrationSetting setting, planning::describe_setting(flags.engine));
  const std::string path = planning::default_calibration_path(setting);
  if (!std::filesystem::exists(path, error)) return planning::MakeCost();
  QUIRE_TRY(Calibration calibration, planning::load_calibration(path));
  return calibrated_cost(std::move(calibration), true);
}

}  // namespace quire::cli
