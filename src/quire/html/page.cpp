#include "quire/html/page.h"

#include <algorithm>

#include "quire/html/chart_json.h"
#include "quire/html/page_assets.h"

namespace quire::html {
namespace {

/// Text as HTML, good for elements and quoted attributes.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// JSON that cannot end the script element it stands in: '<' occurs in its strings only.
std::string inside_script(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) c == '<' ? out += "\\u003c" : out += c;
  return out;
}

template <class... Parts>
void append(std::string& out, const Parts&... parts) {
  (append_text(out, parts), ...);
}

/// "1,024", "12.5 %", "-3"; not "3x" or "".
bool looks_numeric(std::string_view cell) {
  if (cell.empty() || cell.find_first_of("0123456789") == std::string_view::npos) return false;
  return cell.find_first_not_of("0123456789.,+-e% ") == std::string_view::npos;
}

std::vector<bool> numeric_columns(const Table& table) {
  std::vector<bool> numeric(table.columns.size(), !table.rows.empty());
  for (const auto& row : table.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) numeric[i] = numeric[i] && (looks_numeric(row[i]) || row[i].empty());
  }
  return numeric;
}

Result<void> append_table(std::string& out, const Table& table) {
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    if (table.rows[i].size() != table.columns.size()) {
      return fail("table '", table.caption, "', row ", i, ": found ", table.rows[i].size(), " cells, wanted ",
                  table.columns.size());
    }
  }
  const std::vector<bool> numeric = numeric_columns(table);
  const auto attribute = [&](std::size_t column) { return numeric[column] ? " class=\"number\"" : ""; };
  append(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"", escaped(table.caption), "\">");
  append(out, "<table><caption>", escaped(table.caption), "</caption><thead><tr>");
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    append(out, "<th scope=\"col\"", attribute(i), ">", escaped(table.columns[i]), "</th>");
  }
  append(out, "</tr></thead><tbody>");
  for (const auto& row : table.rows) {
    append(out, "<tr>");
    for (std::size_t i = 0; i < row.size(); ++i) append(out, "<td", attribute(i), ">", escaped(row[i]), "</td>");
    append(out, "</tr>");
  }
  append(out, "</tbody></table></div>\n");
  return {};
}

/// A mark, a word, and a colour: none of them alone says it.
std::string outcome_cell(Outcome outcome) {
  switch (outcome) {
    case Outcome::holds:
      return "<span class=\"holds\">✓ holds</span>";
    case Outcome::fails:
      return "<span class=\"fails\">✗ fails</span>";
    case Outcome::none:
      return "<span class=\"none\">– none</span>";
  }
  return {};
}

void append_verdicts(std::string& out, const std::vector<Verdict>& verdicts) {
  if (verdicts.empty()) return;
  append(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Verdicts\"><table class=\"verdicts\">",
         "<thead><tr><th scope=\"col\">what</th><th scope=\"col\">expected</th><th scope=\"col\">found</th>",
         "<th scope=\"col\">band</th><th scope=\"col\">verdict</th></tr></thead><tbody>");
  for (const Verdict& verdict : verdicts) {
    append(out, "<tr><th scope=\"row\">", escaped(verdict.what), "</th><td>", escaped(verdict.expected), "</td><td>",
           escaped(verdict.found), "</td><td>", escaped(verdict.band), "</td><td>", outcome_cell(verdict.outcome),
           "</td></tr>");
  }
  append(out, "</tbody></table></div>\n");
}

/// What made it: stands below each picture, so that a picture cut out of the page still says so.
std::string source_line(const Page& page) {
  std::string out = cat("Quire ", escaped(page.version));
  if (page.seed) append(out, " · seed ", *page.seed);
  append(out, " · <code>", escaped(page.command), "</code>");
  return out;
}

bool is_wide(const Chart& chart) {
  return std::holds_alternative<GanttChart>(chart.picture) || std::holds_alternative<BlockFilm>(chart.picture) ||
         std::holds_alternative<Comparison>(chart.picture);
}

void append_figure(std::string& out, const Chart& chart, std::size_t index, const std::string& source) {
  append(out, "<figure class=\"", is_wide(chart) ? "chart wide" : "chart", "\" data-chart=\"", index,
         "\"><figcaption>");
  append(out, "<h3>", escaped(chart.title), "</h3><p class=\"summary\" id=\"summary-", index, "\">");
  append(out, escaped(chart.summary), "</p></figcaption>");
  append(out, "<noscript><p>The picture and its table are drawn by the page's own script.</p></noscript>");
  append(out, "<div class=\"picture\"></div><p class=\"source\">", source, "</p></figure>\n");
}

Result<void> append_section(std::string& out, const Section& section, std::size_t number) {
  append(out, "<section id=\"section-", number, "\"><h2>", escaped(section.heading), "</h2>\n");
  for (const std::string& paragraph : section.text) append(out, "<p>", escaped(paragraph), "</p>\n");
  append_verdicts(out, section.verdicts);
  for (const Table& table : section.tables) QUIRE_TRY_VOID(append_table(out, table));
  return {};
}

void append_header(std::string& out, const Page& page) {
  append(out, "<header><h1>", escaped(page.title), "</h1>");
  if (!page.subtitle.empty()) append(out, "<p class=\"subtitle\">", escaped(page.subtitle), "</p>");
  append(out, "<pre class=\"command\" tabindex=\"0\" role=\"region\" aria-label=\"The command that makes this page\">");
  append(out, escaped(page.command), "</pre><dl class=\"facts\">");
  const auto fact = [&](std::string_view name, std::string_view value) {
    append(out, "<div><dt>", escaped(name), "</dt><dd>", escaped(value), "</dd></div>");
  };
  fact("Quire", page.version);
  if (page.seed) fact("seed", cat(*page.seed));
  for (const Fact& one : page.facts) fact(one.name, one.value);
  append(out, "</dl></header>\n");
  if (page.sections.size() < 2) return;
  append(out, "<nav aria-label=\"Sections\"><ul>");
  for (std::size_t i = 0; i < page.sections.size(); ++i) {
    append(out, "<li><a href=\"#section-", i, "\">", escaped(page.sections[i].heading), "</a></li>");
  }
  append(out, "</ul></nav>\n");
}

void append_head(std::string& out, const Page& page) {
  append(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n",
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; ",
         "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">\n",
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
         "<meta name=\"color-scheme\" content=\"light dark\"><meta name=\"generator\" content=\"Quire ",
         escaped(page.version), "\">\n<link rel=\"icon\" href=\"data:,\"><title>", escaped(page.title),
         "</title>\n<style>\n", page_style(), "</style></head>\n<body><div class=\"page\">\n");
}

}  // namespace

Result<std::string> render(const Page& page) {
  std::string out, charts = "[";
  append_head(out, page);
  append_header(out, page);
  append(out, "<main>\n");
  const std::string source = source_line(page);
  std::size_t num_charts = 0;
  for (std::size_t i = 0; i < page.sections.size(); ++i) {
    const Section& section = page.sections[i];
    QUIRE_TRY_VOID(append_section(out, section, i));
    if (!section.charts.empty()) append(out, "<div class=\"charts\">\n");
    for (const Chart& chart : section.charts) {
      append_figure(out, chart, num_charts, source);
      if (num_charts++ > 0) charts += ',';
      QUIRE_TRY_VOID(append_chart(charts, chart));
    }
    append(out, section.charts.empty() ? "</section>\n" : "</div></section>\n");
  }
  if (!page.notes.empty()) {
    append(out, "<section><h2>Notes</h2><ul class=\"notes\">");
    for (const std::string& note : page.notes) append(out, "<li>", escaped(note), "</li>");
    append(out, "</ul></section>\n");
  }
  append(out, "</main>\n<footer><p>Made by ", source,
         ". Pictures drawn with Chart.js (MIT licence).</p></footer></div>\n");
  append(out, "<script type=\"application/json\" id=\"charts\">", inside_script(charts), "]</script>\n");
  append(out, "<script>\n", chart_library(), "\n</script>\n<script>\n(() => {\n\"use strict\";\n", page_script(),
         "})();\n</script>\n</body></html>\n");
  return out;
}

}  // namespace quire::html
