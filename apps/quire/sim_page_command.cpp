// quire sim page: the page of a run from its events, whoever wrote them.

#include "quire/base/cat.h"
#include "quire/html/run_charts.h"
#include "quire/traces/bytes.h"
#include "sim.h"
#include "sim_page.h"
#include "table.h"
#include "terminal.h"

namespace quire::cli {
namespace {

struct PageFlags {
  std::string events_path, page_path;
};

Result<void> draw(const PageFlags& flags) {
  QUIRE_TRY(const std::string text, read_trace_bytes(flags.events_path));
  auto run = html::read_events(text);
  if (!run.ok()) return fail(flags.events_path, ": ", run.error().message);
  const std::string& name = run->header.name;
  QUIRE_TRY(const std::string page, html::render(html::run_page(name.empty() ? "A run" : name, *run)));
  QUIRE_TRY_VOID(write_text(flags.page_path, page));
  write_output(cat(flags.page_path, ": ", grouped(run->steps.size()), " steps, ", grouped(run->requests.size()),
                   " events of requests, ", grouped(run->blocks.size()), " of blocks",
                   run->num_unknown > 0 ? cat("; ", run->num_unknown, " of unknown kinds were passed over") : "",
                   "\n"));
  return {};
}

}  // namespace

void add_sim_page(CLI::App& sim, Action& chosen) {
  auto flags = std::make_shared<PageFlags>();
  auto* command = sim.add_subcommand("page", "The page of a run from its events (docs/events.md), whoever wrote them");
  command->add_option("EVENTS", flags->events_path, "JSON lines, plain or gzip")->required();
  command->add_option("OUT", flags->page_path, "The page to write")->required();
  command->callback([flags, &chosen] { chosen = [flags] { return run_sim([&] { return draw(*flags); }); }; });
}

}  // namespace quire::cli
