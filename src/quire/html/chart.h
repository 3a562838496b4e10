#pragma once
// Charts as plain data: what is shown, not how it looks. page.h puts them on a page.
//
// Numbers are in the units that their axes name; times of GanttChart and BlockFilm are nanoseconds since the start of
// the run. A page refuses what it could only show wrongly, by name: numbers that are not finite, series whose x goes
// back, lists whose lengths differ.
//
// What is too much for a page is thinned, and the page says so beside the picture (chart_json.h has the rules); no
// value is changed by it.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace quire::html {

enum class Scale { linear, logarithmic };

struct Axis {
  std::string label;  ///< "time"
  std::string unit;   ///< "s", "%", "tokens", ...; empty: a number without one. "bytes" is printed as KiB, MiB, GiB
  Scale scale = Scale::linear;
};

enum class Draw {
  line,
  steps,  ///< a value holds until the next one
  area,   ///< steps, filled down to the axis or, if stacked, to the series before
  points
};

struct Series {
  std::string name;
  Draw draw = Draw::line;
  std::vector<double> x;  ///< ascending (equal ones may follow each other), but for points
  std::vector<double> y;  ///< as many
};

/// Events on the x axis: ticks at the upper edge.
struct Marks {
  std::string name;
  std::vector<double> x;
};

/// A horizontal line.
struct Limit {
  std::string name;
  double y = 0;
};

/// The point of a curve that a reader should look at.
struct Knee {
  double x = 0, y = 0;
  std::string text;
};

enum class Arrangement { side_by_side, stacked };

/// Lines, areas and points over a numeric x axis: KV use over time, CDFs, latency over rate.
struct LineChart {
  Axis x, y;
  std::vector<Series> series;
  std::vector<Marks> marks;
  std::vector<Limit> limits;
  std::optional<Knee> knee;
  Arrangement arrangement = Arrangement::side_by_side;  ///< stacked: all series have the same x
};

enum class Tone {
  strong,
  muted  ///< there for comparison only: what is left of a budget
};

struct BarSeries {
  std::string name;
  std::vector<double> values;  ///< one for each category
  Tone tone = Tone::strong;
};

enum class Names {
  thinned,  ///< categories stand side by side, in an order that says what the ones without a label are
  all       ///< they lie below each other, so that each has its name beside it
};

/// Bars over named categories: histograms, step budgets, settings.
struct BarChart {
  Axis x, y;  ///< y may be logarithmic, x is categories
  std::vector<std::string> categories;
  std::vector<BarSeries> series;
  Arrangement arrangement = Arrangement::stacked;
  Names names = Names::thinned;
};

/// What a request is doing.
enum class Phase : std::uint8_t {
  queued,
  prefill,
  decode,
  preempted,  ///< it has lost its memory and waits
  restored,   ///< its K and V are being computed again or read back
};
inline constexpr std::size_t kNumPhases = 5;
std::string_view to_string(Phase phase);

struct PhaseSpan {
  Phase phase = Phase::queued;
  std::uint64_t begin_ns = 0, end_ns = 0;
};

struct GanttRow {
  std::string name;              ///< the request's
  std::vector<PhaseSpan> spans;  ///< in order of time, none within another
};

/// A row for each request, over time.
struct GanttChart {
  std::vector<GanttRow> rows;
};

/// What a physical block is. Free is what no run covers.
enum class BlockState : std::uint8_t {
  used,      ///< held by requests
  shared,    ///< held by several requests or branches
  cached,    ///< free, with content that a request may find
  reserved,  ///< held and empty
};
inline constexpr std::size_t kNumBlockStates = 4;
std::string_view to_string(BlockState state);

/// One block, from one moment to another.
struct BlockRun {
  std::uint32_t block = 0;  ///< below BlockFilm::num_blocks
  BlockState state = BlockState::used;
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::uint64_t owner = 0;  ///< the request that holds it, or wrote it; 0: nobody, or several
};

/// Every physical block over time.
struct BlockFilm {
  std::uint32_t num_blocks = 0;
  std::uint64_t end_ns = 0;    ///< the film's length; no run goes beyond
  std::vector<BlockRun> runs;  ///< of one block: in order of time, none within another; of several: in any order
};

enum class Better { lower, higher, neither };

struct Metric {
  std::string name, unit;
  Better better = Better::neither;
  std::vector<double> values;  ///< one for each contender
};

/// Contenders (managers, policies, settings) side by side: a small chart for each metric, each on its own axis.
struct Comparison {
  std::string what;  ///< what the contenders are: "manager"
  std::vector<std::string> contenders;
  std::vector<Metric> metrics;
};

struct Chart {
  std::string title;
  std::string summary;  ///< what it shows, in a sentence: read out in place of the picture
  std::variant<LineChart, BarChart, GanttChart, BlockFilm, Comparison> picture;
};

/// The share of `values` [%] in each of `num_bins` ranges of equal width from `low` to `high`, as one series called
/// `name`; what lies outside counts into the first or last one, whose categories say so. `weights`: one for each value,
/// or empty for all equal. low < high, num_bins >= 1.
struct HistogramSpec {
  Axis x;
  std::string name;
  double low = 0, high = 1;
  std::size_t num_bins = 20;
};
BarChart histogram(const HistogramSpec& spec, const std::vector<double>& values,
                   const std::vector<double>& weights = {});

/// The cumulative distribution of `values`, in any order: a series of (value, % of values not above it), of at most
/// kMaxCdfPoints points, each exact.
Series cdf(std::string name, std::vector<double> values);
inline constexpr std::size_t kMaxCdfPoints = 1000;

}  // namespace quire::html
