#include "quire/html/timeline_json.h"

#include <algorithm>

#include "quire/html/chart_json.h"

namespace quire::html {
namespace {

std::uint64_t tick_for(std::uint64_t end_ns) {
  std::uint64_t tick = 1;
  while (end_ns / tick >= 100'000'000) tick *= 10;
  return tick;
}

/// A list of spans as (gap, length, ...), in ticks. Ends are rounded, not lengths, so that nothing drifts.
class SpanList {
 public:
  SpanList(std::string& out, std::uint64_t tick_ns) : out_(out), tick_ns_(tick_ns) {}

  /// A span shorter than half a tick keeps its place with length 0.
  void append(std::uint64_t begin_ns, std::uint64_t end_ns) {
    const std::uint64_t begin = std::max(rounded(begin_ns), at_), end = std::max(rounded(end_ns), begin);
    number(begin - at_);
    number(end - begin);
    at_ = end;
  }
  void number(std::uint64_t value) {
    append_text(out_, value);
    out_ += ',';
  }

 private:
  std::uint64_t rounded(std::uint64_t ns) const { return ns / tick_ns_ + (ns % tick_ns_ >= (tick_ns_ + 1) / 2); }

  std::string& out_;
  std::uint64_t tick_ns_, at_ = 0;
};

Result<void> check_span(std::uint64_t begin_ns, std::uint64_t end_ns, std::uint64_t before_ns, std::string_view where) {
  if (begin_ns > end_ns)
    return fail(where, ": found a span from ", begin_ns, " to ", end_ns, " ns, wanted begin <= end");
  if (begin_ns < before_ns) {
    return fail(where, ": found a span from ", begin_ns, " ns after one that ends at ", before_ns, ", wanted in order");
  }
  return {};
}

void close_list(std::string& list) {
  if (list.back() == ',') list.pop_back();
  list += ']';
}

std::string gantt_row(const GanttRow& row, std::uint64_t tick_ns) {
  std::string list = "[";
  json::append_string(list, row.name);
  list += ',';
  SpanList spans(list, tick_ns);
  for (const PhaseSpan& span : row.spans) {
    spans.append(span.begin_ns, span.end_ns);
    spans.number(static_cast<std::uint64_t>(span.phase));
  }
  close_list(list);
  return list;
}

/// Runs of one block after the other, each block's in order of time.
std::vector<BlockRun> sorted_runs(const BlockFilm& film) {
  std::vector<BlockRun> runs = film.runs;
  std::stable_sort(runs.begin(), runs.end(), [](const BlockRun& a, const BlockRun& b) {
    return a.block != b.block ? a.block < b.block : a.begin_ns < b.begin_ns;
  });
  return runs;
}

Result<void> check_film(const BlockFilm& film, const std::vector<BlockRun>& runs) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const BlockRun& run = runs[i];
    const std::string where = cat("block ", run.block);
    if (run.block >= film.num_blocks) return fail(where, ": wanted one below ", film.num_blocks);
    const bool follows = i > 0 && runs[i - 1].block == run.block;
    QUIRE_TRY_VOID(check_span(run.begin_ns, run.end_ns, follows ? runs[i - 1].end_ns : 0, where));
    if (run.end_ns > film.end_ns) {
      return fail(where, ": found a run until ", run.end_ns, " ns, wanted at most the film's ", film.end_ns);
    }
  }
  return {};
}

/// The same runs, seen in `num_moments` moments only. Each moment stands for the time until the next one.
std::vector<BlockRun> sampled_runs(const std::vector<BlockRun>& runs, std::uint64_t end_ns, std::uint64_t num_moments) {
  const std::uint64_t step_ns = end_ns / num_moments + 1;
  const auto next_moment = [&](std::uint64_t ns) { return (ns / step_ns + (ns % step_ns > 0)) * step_ns; };
  std::vector<BlockRun> kept;
  for (BlockRun run : runs) {
    run.begin_ns = next_moment(run.begin_ns);
    run.end_ns = next_moment(run.end_ns);
    run.end_ns = std::min(run.end_ns, end_ns);
    if (run.begin_ns < run.end_ns) kept.push_back(run);
  }
  return kept;
}

void append_names(json::Writer& w, std::string_view key, std::size_t count, std::string_view (*name)(std::size_t)) {
  w.key(key).begin_array();
  for (std::size_t i = 0; i < count; ++i) w.value(name(i));
  w.end_array();
}

}  // namespace

Result<void> append_gantt(json::Writer& w, const GanttChart& chart) {
  std::uint64_t end_ns = 0, num_spans = 0;
  for (const GanttRow& row : chart.rows) {
    std::uint64_t before_ns = 0;
    for (const PhaseSpan& span : row.spans) {
      QUIRE_TRY_VOID(check_span(span.begin_ns, span.end_ns, before_ns, cat("request '", row.name, "'")));
      before_ns = span.end_ns;
    }
    end_ns = std::max(end_ns, before_ns);
    num_spans += row.spans.size();
  }
  // Requests differ in their spans, so the smallest k is found by trying.
  std::size_t every = std::max<std::size_t>(1, num_spans / kMaxGanttSpans);
  const auto kept_spans = [&](std::size_t k) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < chart.rows.size(); i += k) count += chart.rows[i].spans.size();
    return count;
  };
  while (every < chart.rows.size() && kept_spans(every) > kMaxGanttSpans) ++every;

  const std::uint64_t tick_ns = tick_for(end_ns);
  w.field("kind", "gantt").field("tick_ns", tick_ns).field("end_ns", end_ns);
  append_names(w, "phases", kNumPhases, [](std::size_t i) { return to_string(static_cast<Phase>(i)); });
  w.key("rows").begin_array();
  for (std::size_t i = 0; i < chart.rows.size(); i += every) w.raw(gantt_row(chart.rows[i], tick_ns));
  w.end_array();
  if (every > 1)
    w.field("note", cat("Thinned: one of every ", every, " of ", chart.rows.size(), " requests is shown."));
  return {};
}

Result<void> append_film(json::Writer& w, const BlockFilm& film) {
  std::vector<BlockRun> runs = sorted_runs(film);
  QUIRE_TRY_VOID(check_film(film, runs));
  const auto every =
      static_cast<std::uint32_t>(film.num_blocks / kMaxFilmBlocks + (film.num_blocks % kMaxFilmBlocks > 0));
  std::string note;
  if (every > 1) {
    const auto is_left_out = [&](const BlockRun& run) { return run.block % every != 0; };
    runs.erase(std::remove_if(runs.begin(), runs.end(), is_left_out), runs.end());
    note = cat("Thinned: one of every ", every, " of ", film.num_blocks, " blocks is shown. ");
  }
  std::uint64_t num_moments = 4096;
  const std::size_t num_runs = runs.size();
  if (num_runs > kMaxFilmRuns) {
    std::vector<BlockRun> sampled = sampled_runs(runs, film.end_ns, num_moments);
    while (sampled.size() > kMaxFilmRuns && num_moments > 1) {
      num_moments -= num_moments / 4 + 1;
      sampled = sampled_runs(runs, film.end_ns, std::max<std::uint64_t>(num_moments, 1));
    }
    runs = std::move(sampled);
    note += cat("Thinned: each block is looked at in ", num_moments,
                " equally spaced moments, instead of whenever it changed, ", num_runs, " times in all.");
  }

  const std::uint64_t tick_ns = tick_for(film.end_ns);
  w.field("kind", "film").field("tick_ns", tick_ns).field("end_ns", film.end_ns);
  append_names(w, "states", kNumBlockStates, [](std::size_t i) { return to_string(static_cast<BlockState>(i)); });
  w.field("every", every).key("blocks").begin_array();
  std::size_t next = 0;
  for (std::uint64_t block = 0; block < film.num_blocks; block += every) {
    std::string list = "[";
    SpanList spans(list, tick_ns);
    for (; next < runs.size() && runs[next].block == block; ++next) {
      spans.append(runs[next].begin_ns, runs[next].end_ns);
      spans.number(static_cast<std::uint64_t>(runs[next].state));
      spans.number(runs[next].owner);
    }
    close_list(list);
    w.raw(list);
  }
  w.end_array();
  if (!note.empty()) w.field("note", note);
  return {};
}

}  // namespace quire::html
