#pragma once
// A page: plain data in, one HTML file out, complete in itself. It fetches nothing (its content security policy
// forbids it), follows the reader's dark or light setting, and works from 360 px of width on. Each chart comes with its
// table, a CSV, its units, and the seed, version and command that made it.
//
//     html::Page page{.title = "...", .command = "quire sim ...", .version = "0.1.0", .seed = 42};
//     page.sections.push_back({.heading = "Memory", .charts = {chart}});
//     QUIRE_TRY(const std::string text, html::render(page));
//
// No clock and no file: the same page gives the same bytes. All text is plain text; markup in it is shown as it is.
// Thread-safety: functions of their arguments.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/result.h"
#include "quire/html/chart.h"

namespace quire::html {

/// A small table, shown as it is. A column whose cells are all numbers is set to the right.
struct Table {
  std::string caption;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  ///< a cell for each column
};

enum class Outcome {
  holds,
  fails,
  none,  ///< no verdict, and `band` says why
};

/// What was expected beside what came out.
struct Verdict {
  std::string what, expected, found;
  std::string band;  ///< within which they have to agree
  Outcome outcome = Outcome::none;
};

struct Section {
  std::string heading;
  std::vector<std::string> text;  ///< paragraphs
  std::vector<Verdict> verdicts;
  std::vector<Table> tables;
  std::vector<Chart> charts;
};

struct Fact {
  std::string name, value;
};

struct Page {
  std::string title;
  std::string subtitle;  ///< the answer in a sentence
  std::string command;   ///< that makes this page again
  std::string version;   ///< of Quire
  std::optional<std::uint64_t> seed;
  std::vector<Fact> facts;         ///< machine, model, options; shown at the top
  std::vector<std::string> notes;  ///< what a reader has to know, shown at the end
  std::vector<Section> sections;
};

/// The page, UTF-8. Refused: what chart.h says, and a table's row that is not as long as its columns.
Result<std::string> render(const Page& page);

}  // namespace quire::html
