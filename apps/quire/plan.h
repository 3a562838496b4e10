#pragma once
// What the files of `quire plan` share: the flags, what serve measured, and the three ways to show a plan.

#include <optional>
#include <string>
#include <vector>

#include "quire/html/page.h"
#include "quire/json/json.h"
#include "quire/planning/plan.h"
#include "sim.h"

namespace quire::cli {

struct PlanFlags {
  SimFlags common;  ///< --json, --html, --seed
  engine::EngineOptions engine;
  std::uint64_t memory_bytes = 0;  ///< 0: what is free here
  std::string workload = "chat", arrivals = "poisson", limits;
  std::int32_t shared_prefix = 0;
  std::optional<double> rate;
  std::uint64_t num_requests = 600;
  std::string measured_path;  ///< the line that `quire serve --json` printed; empty: none
  // The cost model; at most one of these.
  std::string calibration_path, cost_name;
  std::vector<double> roofline;  ///< GB/s, T operations/s, and ms a step or nothing
};

/// A part of the memory as the engine measured it after loading.
struct MeasuredPart {
  std::string name;  ///< as planning::MemoryPart::name
  std::uint64_t bytes = 0;
};
/// From the summary of `quire serve --json`; an error names file and field.
Result<std::vector<MeasuredPart>> read_measured(const std::string& path);

/// The cost model that the flags name, else this machine's calibration; empty if they name none and there is none, and
/// `why` says so. An error: what they name cannot be used.
Result<planning::MakeCost> choose_cost(const PlanFlags& flags, std::string& why);

/// The command line to paste.
std::string serve_command(const planning::Plan& plan);

std::string plan_as_text(const planning::Plan& plan, const std::vector<MeasuredPart>& measured);
void append_plan(json::Object& out, const planning::Plan& plan, const std::vector<MeasuredPart>& measured);
html::Page plan_page(const PlanFlags& flags, const planning::Plan& plan);

}  // namespace quire::cli
