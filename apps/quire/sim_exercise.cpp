// quire sim exercise: paging against an array of the maximum length for each request.

#include "block_file.h"
#include "sim.h"
#include "sim_page.h"
#include "table.h"
#include "terminal.h"

namespace quire::cli {
namespace {

constexpr const char* kFootnotes[] = {
    "A mean length of 100 tokens, of which one often reads, wastes 7 % at block size 16: half a block less half a "
    "slot, "
    "7.5 slots of 107.5. At a mean of 275 it is 2.7 %.",
    "2.5 MB of K and V a token, of which one often reads, assumes elements of 4 bytes; in f16 it is half of that."};

struct ExerciseFlags {
  SimFlags sim;
  ExerciseOptions options;
  std::string directory;
};

json::Value side_as_json(const ExerciseSide& side) {
  json::Array histogram(side.utilisation_histogram.begin(), side.utilisation_histogram.end());
  return json::Object{{"blocks_occupied", side.blocks_occupied},
                      {"blocks_occupied_max", side.blocks_occupied_max},
                      {"utilisation", side.utilisation},
                      {"internal_fragmentation", side.internal_fragmentation},
                      {"external_fragmentation", side.external_fragmentation},
                      {"requests_at_once_mean", side.requests_at_once_mean},
                      {"requests_at_once_max", side.requests_at_once_max},
                      {"allocation_failures", side.allocation_failures},
                      {"preemptions", side.preemptions},
                      {"bytes_written", side.bytes_written},
                      {"bytes_read", side.bytes_read},
                      {"steps", side.num_steps},
                      {"steps_with_requests_waiting", side.num_waiting_steps},
                      {"virtual_seconds", static_cast<double>(side.virtual_ns) * 1e-9},
                      {"digest", cat(side.digest)},
                      {"utilisation_histogram", std::move(histogram)}};
}

json::Value setting_as_json(const ExerciseSetting& setting) {
  return json::Object{{"max_len", setting.max_len},
                      {"mode", to_string(setting.mode)},
                      {"block_size", setting.block_size},
                      {"paged", side_as_json(setting.paged)},
                      {"contiguous", side_as_json(setting.contiguous)},
                      {"concurrency_ratio", setting.concurrency_ratio},
                      {"concurrency_bound", setting.concurrency_bound},
                      {"concurrency_bound_by_step", setting.concurrency_bound_by_step}};
}

json::Object as_json(const ExerciseFlags& flags, const ExerciseReport& found) {
  json::Object out = sim_report_head(flags.sim);
  const ExerciseOptions& options = found.options;
  out.append("requests", json::Object{{"count", options.num_requests},
                                      {"shortest", options.shortest},
                                      {"longest", options.longest},
                                      {"lengths", json::Array(found.lengths.begin(), found.lengths.end())}});
  out.append("pool", json::Object{{"blocks", options.num_blocks},
                                  {"block_size", options.block_size},
                                  {"slots", std::int64_t{options.num_blocks} * options.block_size}});
  out.append("unlimited", json::Object{{"max_len", options.max_lens.front()},
                                       {"paged_blocks", found.unlimited_blocks},
                                       {"contiguous_blocks", found.unlimited_arrays}});
  json::Array settings, sweep, notes;
  for (const auto& setting : found.settings) settings.push_back(setting_as_json(setting));
  for (const auto& setting : found.sweep) sweep.push_back(setting_as_json(setting));
  for (const char* note : kFootnotes) notes.emplace_back(note);
  out.append("settings", std::move(settings));
  out.append("sweep", std::move(sweep));
  out.append("blocks_restored_and_compared", found.blocks_restored);
  out.append("cost", found.cost);
  out.append("footnotes", std::move(notes));
  return out;
}

std::vector<std::string> side_row(const ExerciseSetting& setting, std::string_view name, const ExerciseSide& side) {
  return {cat(setting.max_len),
          std::string(to_string(setting.mode)),
          std::string(name),
          fixed(side.blocks_occupied, 0),
          fixed(side.requests_at_once_mean, 1),
          cat(side.requests_at_once_max),
          percent(side.utilisation),
          percent(side.internal_fragmentation),
          percent(side.external_fragmentation),
          cat(side.allocation_failures),
          cat(side.preemptions),
          grouped(side.bytes_written),
          grouped(side.bytes_read),
          fixed(static_cast<double>(side.virtual_ns) * 1e-9, 1)};
}

std::string comparison(const ExerciseReport& found) {
  Table table({"max len", "mode", "memory", "blocks", "at once", "max", "used", "internal", "external", "failures",
               "preempted", "written B", "read B", "virtual s"});
  for (const auto& setting : found.settings) {
    table.add(side_row(setting, "paged", setting.paged));
    table.add(side_row(setting, "contiguous", setting.contiguous));
  }
  return table.text(3);
}

std::string ratios(const ExerciseReport& found) {
  Table table({"max len", "mode", "paged", "contiguous", "ratio", "bound", "bound by step"});
  for (const auto& setting : found.settings)
    table.add({cat(setting.max_len), std::string(to_string(setting.mode)),
               fixed(setting.paged.requests_at_once_mean, 1), fixed(setting.contiguous.requests_at_once_mean, 1),
               fixed(setting.concurrency_ratio, 2), fixed(setting.concurrency_bound, 2),
               fixed(setting.concurrency_bound_by_step, 2)});
  return table.text(2);
}

std::string block_sizes(const ExerciseReport& found) {
  Table table({"block size", "mode", "at once", "used", "internal", "external", "preempted", "ratio"});
  for (const auto& setting : found.sweep)
    table.add({cat(setting.block_size), std::string(to_string(setting.mode)),
               fixed(setting.paged.requests_at_once_mean, 1), percent(setting.paged.utilisation),
               percent(setting.paged.internal_fragmentation), percent(setting.paged.external_fragmentation),
               cat(setting.paged.preemptions), fixed(setting.concurrency_ratio, 2)});
  return table.text(2);
}

std::string histogram(const ExerciseSide& side) {
  std::vector<Bar> all;
  for (std::size_t i = 0; i < kUtilisationBuckets; ++i)
    all.push_back({cat(100 * i / kUtilisationBuckets, "-", 100 * (i + 1) / kUtilisationBuckets, " %"),
                   side.utilisation_histogram[i]});
  return bars(all, 60);
}

const ExerciseSetting* find_setting(const ExerciseReport& found, std::int32_t max_len, LengthMode mode) {
  for (const auto& setting : found.settings)
    if (setting.max_len == max_len && setting.mode == mode) return &setting;
  return nullptr;
}

/// Where the often quoted 3 to 5 times are, and where they are not; empty if these settings were not asked for.
std::string quoted_ratio(const ExerciseReport& found) {
  const auto* growing = find_setting(found, 512, LengthMode::growing);
  const auto* whole = find_setting(found, 512, LengthMode::static_length);
  const auto* longer = find_setting(found, 1024, LengthMode::static_length);
  if (growing == nullptr || whole == nullptr || longer == nullptr) return {};
  const auto numbers = [](const ExerciseSetting& setting) {
    return cat(fixed(setting.concurrency_bound, 1), " at most, ", fixed(setting.concurrency_ratio, 1), " here");
  };
  return cat("The often quoted 3 to 5 times as many requests appear at 512 only while requests grow (",
             numbers(*growing), "), and near 1,024 if whole lengths are held (", numbers(*longer),
             "); at 512 with whole lengths it is ", numbers(*whole), ".");
}

/// Of the requests one by one, whole lengths in blocks: steps weight longer ones more.
double unfilled_share(const ExerciseReport& found) {
  std::int64_t filled = 0;
  for (const std::int32_t length : found.lengths) filled += length;
  return 1 - static_cast<double>(filled) / static_cast<double>(found.unlimited_blocks * found.options.block_size);
}

std::string as_text(const ExerciseReport& found) {
  const ExerciseOptions& options = found.options;
  const std::int32_t max_len = options.max_lens.front();
  std::string out =
      cat(options.num_requests, " requests of ", options.shortest, " to ", options.longest,
          " tokens, all there at step 0; ", options.num_blocks, " blocks of ", options.block_size, " tokens (",
          grouped(static_cast<std::uint64_t>(options.num_blocks) * static_cast<std::uint64_t>(options.block_size)),
          " slots); each decodes a token a step.\n\n");
  out += cat("Without a limit, whole lengths: ", found.unlimited_blocks, " blocks paged; ", found.unlimited_arrays,
             " blocks' worth as arrays of ", max_len, ".\n\n");
  out += comparison(found);
  out += "\n";
  out += in_lines(
      cat("Means are over the steps in which requests wait (all, if nobody does). static: a request holds its whole "
          "length; growing: what it has written, and when blocks run out the oldest request goes to the file. used: "
          "filled slots of the pool; internal: held and unfilled, of held slot-steps (static, each request once and "
          "not each of its steps: ",
          percent(unfilled_share(found)), "); external: free while requests wait. virtual s: ", found.cost,
          ", files at ", kExerciseFileBytesPerSecond / 1'000'000'000, " GB/s."),
      110);
  out += cat(
      "\n", ratios(found),
      "\nThe bound: how many requests fit that hold the mean of all, rounded to blocks, over the arrays that fit "
      "(static:\n"
      "a request's whole length, as at the start; by step: longer requests count more, as they stay longer). Where\n"
      "requests wait while those that run are shorter or younger than the mean, the ratio may pass it a little; where\n"
      "the first steps, in which all are short, have nobody waiting, growing requests stay below it.\n",
      in_lines(quoted_ratio(found), 110), "\n", found.blocks_restored,
      " blocks were read back from the file, K and V, and were what had been written.\n");
  for (const auto& setting : found.settings) {
    if (setting.max_len != max_len || setting.mode != LengthMode::growing) continue;
    out += cat("\nMemory utilisation, steps, max length ", max_len, ", growing, paged\n", histogram(setting.paged),
               "\nthe same, contiguous\n", histogram(setting.contiguous));
  }
  out += cat("\nBlock sizes, max length ", max_len, ", the same pool, in blocks that fill it\n", block_sizes(found));
  int number = 0;
  out += "\n";
  for (const char* note : kFootnotes) out += cat("[", ++number, "] ", note, "\n");
  return out;
}

std::vector<std::string> page_notes(const ExerciseReport& found) {
  std::vector<std::string> notes = {
      "static: a request holds its whole length; growing: what it has written, and when blocks run out the oldest "
      "request goes to a file."};
  if (std::string ratio = quoted_ratio(found); !ratio.empty()) notes.push_back(std::move(ratio));
  notes.insert(notes.end(), std::begin(kFootnotes), std::end(kFootnotes));
  return notes;
}

Result<void> exercise(ExerciseFlags flags) {
  flags.options.seed = flags.sim.seed;
  QUIRE_TRY_VOID(check_options(flags.options));
  QUIRE_TRY(auto file, TemporaryBlockFile::create(flags.directory));
  QUIRE_TRY(const ExerciseReport found, run_exercise(flags.options, file));
  write_output(as_text(found));
  QUIRE_TRY_VOID(write_sim_json(flags.sim, as_json(flags, found)));
  return write_sim_page(flags.sim, exercise_page(flags.sim, found, page_notes(found)));
}

}  // namespace

void add_sim_exercise(CLI::App& sim, Action& chosen) {
  auto flags = std::make_shared<ExerciseFlags>();
  auto* command = sim.add_subcommand(
      "exercise", "100 requests on a small pool: paging against an array of the maximum length for each");
  add_sim_flags(*command, flags->sim);
  ExerciseOptions& options = flags->options;
  command->add_option("--requests", options.num_requests, "How many")->capture_default_str();
  command->add_option("--shortest", options.shortest, "Tokens of the shortest request")->capture_default_str();
  command->add_option("--longest", options.longest, "Tokens of the longest request")->capture_default_str();
  command->add_option("--block-size", options.block_size, "Tokens a block")->capture_default_str();
  command->add_option("--blocks", options.num_blocks, "Blocks of the pool")->capture_default_str();
  command->add_option("--max-len", options.max_lens, "Maximum lengths to compare with")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--dir", flags->directory,
                      "Where the file for blocks is made, and stays (default: a temporary file)");
  command->callback([flags, &chosen] { chosen = [flags] { return run_sim([&] { return exercise(*flags); }); }; });
}

}  // namespace quire::cli
