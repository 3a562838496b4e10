// quire calibrate: what steps cost on this machine with a model, measured and kept for `quire plan`.

#include <cstdio>
#include <memory>
#include <string>

#include "commands.h"
#include "flags.h"
#include "quire/base/cat.h"
#include "quire/planning/calibrate.h"
#include "quire/report/report.h"
#include "terminal.h"

namespace quire::cli {
namespace {

struct CalibrateFlags {
  planning::CalibrateOptions options;
  std::string out;   ///< empty: the default place
  std::string json;  ///< a file; "-": standard output, without the table; empty: none
};

std::string shape_in_words(const StepShape& shape) {
  std::string text;
  if (shape.num_decode_rows > 0)
    text = cat(shape.num_decode_rows, shape.num_decode_rows == 1 ? " decode" : " decodes", " at ",
               shape.decode_context / shape.num_decode_tokens);
  if (shape.num_prefill_rows == 0) return text;
  // Of equal chunks, as the shapes that are measured have them.
  const std::int64_t tokens = shape.num_prefill_tokens / shape.num_prefill_rows;
  const double sum = shape.prefill_squares / static_cast<double>(shape.num_prefill_tokens);  // begin + end
  const auto begin = static_cast<std::int64_t>((sum - static_cast<double>(tokens)) / 2 + 0.5);
  text += cat(text.empty() ? "" : ", ");
  if (shape.num_prefill_rows > 1) text += cat(shape.num_prefill_rows, " x ");
  return text + cat("prefill ", begin, "..", begin + tokens,
                    shape.num_logit_rows == shape.num_decode_rows ? ", no logits" : "");
}

report::Report make_report(const planning::MeasuredCost& measured) {
  const planning::Calibration& calibration = measured.calibration;
  report::Report result{.name = "calibrate",
                        .machine = cat(calibration.setting.cpu, ", ", calibration.setting.threads, " threads, ",
                                       calibration.setting.cpu_tier),
                        .subject = cat(calibration.setting.model, ", KV ", calibration.setting.kv_type)};
  for (const planning::CostPoint& point : measured.points) {
    const double fitted = static_cast<double>(calibration.fitted.execute_ns(point.shape));
    result.rows.push_back(
        report::make_row({shape_in_words(point.shape), "ms"}, {fitted * 1e-6}, "measured", {point.ns * 1e-6}));
  }
  return result;
}

std::string in_percent(double share) {
  const auto tenths = static_cast<std::int64_t>(share * 1000 + 0.5);
  return cat(tenths / 10, ".", tenths % 10, " %");
}

Result<void> run(const CalibrateFlags& flags) {
  planning::CalibrateOptions options = flags.options;
  QUIRE_TRY_VOID(read_environment(options.engine));
  Progress progress("calibrating");
  options.progress = [&progress](double fraction) { progress.show(fraction); };
  QUIRE_TRY(const planning::MeasuredCost measured, planning::calibrate(options));
  progress.end();
  const planning::Calibration& calibration = measured.calibration;
  const std::string path = flags.out.empty() ? planning::default_calibration_path(calibration.setting) : flags.out;
  QUIRE_TRY_VOID(planning::save_calibration(calibration, path));
  const report::Report result = make_report(measured);
  if (flags.json != "-") {
    write_output(report::as_table(result));
    write_output(cat("\nfit of ", calibration.fit.num_points, " shapes: median error ",
                     in_percent(calibration.fit.median_error), ", 95 % within ", in_percent(calibration.fit.p95_error),
                     "\n", planning::steadiness_text(calibration), "\nkept in ", path, "\n"));
  }
  if (!flags.json.empty()) return report::write_json(result, flags.json);
  return {};
}

}  // namespace

void add_calibrate(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<CalibrateFlags>();
  auto* command = app.add_subcommand("calibrate", "Measure what steps cost on this machine, for `quire plan`");
  add_model(*command, flags->options.engine.model_path);
  command->add_option("--out", flags->out,
                      "The file to write (default: ~/.cache/quire/calibrations, where `quire plan` looks)");
  command->add_option("--seconds", flags->options.seconds, "Time to measure; more is more exact")
      ->check(number_within(1, 3600))
      ->capture_default_str();
  command->add_option("--json", flags->json, "Also write the rows to this file; -: only JSON, to the standard output");
  add_engine_flags(*command, flags->options.engine);
  command->callback([flags, &chosen] {
    chosen = [flags] {
      auto done = run(*flags);
      if (!done.ok()) report(cat("calibrate: ", done.error().message));
      return done.ok() ? kDone : kFailed;
    };
  });
}

}  // namespace quire::cli
