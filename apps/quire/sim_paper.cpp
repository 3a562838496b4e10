// quire sim paper: published figures, ours beside theirs.

#include <chrono>
#include <cstdio>
#include <memory>

#include "quire/traces/trace_file.h"
#include "sim.h"
#include "sim_page.h"
#include "sim_paper.h"
#include "table.h"
#include "terminal.h"

namespace quire::cli {
namespace {

struct PaperFlags {
  SimFlags sim;
  std::string figure;
  bool reduced = false;
};

Result<PaperInputs> load_inputs(const PaperFlags& flags) {
  PaperInputs inputs;
  inputs.seed = flags.sim.seed;
  inputs.reduced = flags.reduced;
  QUIRE_TRY(const Trace sharegpt, embedded_trace("sharegpt"));
  for (const RequestSpec& request : sharegpt.requests)
    inputs.sharegpt.push_back({request.prompt_tokens, request.output_tokens});
  QUIRE_TRY(Trace conversation, embedded_trace("conversation"));
  inputs.conversation = std::move(conversation.requests);
  QUIRE_TRY(Trace synthetic, embedded_trace("synthetic"));
  inputs.synthetic = std::move(synthetic.requests);
  QUIRE_TRY(inputs.beam_searches, embedded_beam_searches());
  return inputs;
}

std::string as_text(const PaperFigure& figure) {
  Table table({figure.name, "paper", "ours", "band", "verdict"});
  for (const PaperRow& row : figure.rows) {
    const std::string note = row.note.empty() ? "" : " (" + row.note + ")";
    table.add({row.what + note, row.paper ? paper_number(*row.paper, row.unit) : "-", paper_number(row.ours, row.unit),
               paper_band(row), std::string(to_string(row.verdict()))});
  }
  std::string out = figure.title + "\n\n" + table.text();
  for (const std::string& note : figure.notes) out += "  * " + note + "\n";
  return out + "\n";
}

json::Value optional_as_json(const std::optional<double>& value) { return value ? json::Value(*value) : json::Value(); }

json::Value as_json(const PaperFigure& figure) {
  json::Array rows, notes(figure.notes.begin(), figure.notes.end());
  for (const PaperRow& row : figure.rows)
    rows.push_back(json::Object{{"what", row.what},
                                {"paper", optional_as_json(row.paper)},
                                {"ours", row.ours},
                                {"low", optional_as_json(row.low)},
                                {"high", optional_as_json(row.high)},
                                {"unit", row.unit},
                                {"verdict", to_string(row.verdict())},
                                {"note", row.note}});
  return json::Object{{"name", figure.name},
                      {"title", figure.title},
                      {"within", figure.is_within()},
                      {"rows", std::move(rows)},
                      {"notes", std::move(notes)}};
}

Result<void> paper(const PaperFlags& flags) {
  QUIRE_TRY(const PaperInputs inputs, load_inputs(flags));
  json::Object out = sim_report_head(flags.sim);
  json::Array figures;
  std::vector<PaperFigure> all;
  std::string outside;
  for (std::string_view name : paper_figure_names()) {
    if (flags.figure != "all" && flags.figure != name) continue;
    if (stderr_is_terminal()) std::fprintf(stderr, "\r%s ...\033[K", std::string(name).c_str());
    const PaperFigure& figure = all.emplace_back(reproduce_figure(name, inputs));
    if (stderr_is_terminal()) std::fputs("\r\033[K", stderr);
    write_output(as_text(figure));
    flush_output();
    figures.push_back(as_json(figure));
    if (!figure.is_within()) outside += cat(outside.empty() ? "" : ", ", name);
  }
  out.append("reduced", flags.reduced);
  out.append("figures", std::move(figures));
  QUIRE_TRY_VOID(write_sim_json(flags.sim, out));
  QUIRE_TRY_VOID(write_sim_page(flags.sim, paper_page(flags.sim, all)));
  if (!outside.empty()) return fail("outside of their bands: ", outside);
  return {};
}

}  // namespace

std::string paper_number(double value, const std::string& unit) {
  const int digits = unit == "tokens" || unit == "blocks" ? 0 : unit == "s/token" || unit == "s" ? 3 : 2;
  return fixed(value, digits) + " " + unit;
}

std::string paper_band(const PaperRow& row) {
  if (!row.low && !row.high) return "-";
  if (row.low && row.high && *row.low == *row.high) return "exactly";
  if (!row.high) return ">= " + fixed(*row.low, 2);
  if (!row.low) return "<= " + fixed(*row.high, 2);
  return fixed(*row.low, 2) + " to " + fixed(*row.high, 2);
}

void add_sim_paper(CLI::App& sim, Action& chosen) {
  auto flags = std::make_shared<PaperFlags>();
  auto* command = sim.add_subcommand("paper", "Published figures: the paper's value, ours, the band, the verdict");
  std::vector<std::string> names(paper_figure_names().begin(), paper_figure_names().end());
  names.push_back("all");
  command->add_option("FIGURE", flags->figure, "Which figure, or all")->required()->check(CLI::IsMember(names));
  command->add_flag("--reduced", flags->reduced, "A quarter of the simulated time: quicker, noisier");
  add_sim_flags(*command, flags->sim);
  command->callback([flags, &chosen] { chosen = [flags] { return run_sim([&] { return paper(*flags); }); }; });
}

}  // namespace quire::cli
