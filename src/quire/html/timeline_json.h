#pragma once
// Gantt charts and films as JSON: lists of small integers. Internal to html; the script's timeline.js reads it.
//
// Times are in ticks of `tick_ns` nanoseconds, a power of ten, the smallest with which the whole length has at most
// eight digits. A row's or block's list is a sequence of (gap since the end before, length, what), so that a number is
// as short as the span it tells of:
//     gantt   rows: [[name, gap, length, phase, gap, length, phase, ...], ...]
//     film    blocks: [[gap, length, state, owner, ...], ...] of every `every`-th block, an empty list for one that was
//             always free

#include "quire/base/result.h"
#include "quire/html/chart.h"
#include "quire/json/json.h"

namespace quire::html {

Result<void> append_gantt(json::Writer& w, const GanttChart& chart);
Result<void> append_film(json::Writer& w, const BlockFilm& film);

}  // namespace quire::html
