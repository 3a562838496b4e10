// A row for each request over time. Phases differ by height as well as by colour: waiting is thin, working is thick.
const kPhaseHeights = { queued: 0.3, prefill: 0.95, decode: 0.6, preempted: 0.3, restored: 0.95 };
const kWindows = [25, 100, 400];

function ganttLine(figure, row, span) {
  const name = `request ${figure.rows[row].name}`;
  if (!span) return `${name}: nothing at this time`;
  const [begin, end, phase] = span;
  return `${name}: ${figure.data.phases[phase]} from ${formatSeconds(begin)} to ${formatSeconds(end)} (${formatSeconds(end - begin)})`;
}

function paintGantt(figure, ctx, x, y) {
  const { data, rows, hidden, first, window } = figure, colours = data.phases.map(phaseColour);
  for (let row = first; row < Math.min(first + window, rows.length); ++row) {
    for (const [begin, end, phase] of rows[row].spans) {
      const name = data.phases[phase], half = kPhaseHeights[name] / 2;
      if (hidden.has(name)) continue;
      ctx.fillStyle = colours[phase];
      fillBox(ctx, x(begin), y(row + 0.5 - half), x(end), y(row + 0.5 + half));
    }
  }
}

// From the first begin to the last end of what is shown: hiding `queued` brings the work nearer.
function timeInView({ data, rows, first, window, hidden }) {
  let begin = Infinity, end = 0;
  for (const row of rows.slice(first, first + window)) {
    for (const span of row.spans) {
      if (hidden.has(data.phases[span[2]])) continue;
      begin = Math.min(begin, span[0]);
      end = Math.max(end, span[1]);
    }
  }
  return begin < end ? [begin, end] : [0, Math.max(data.end_ns, 1) * 1e-9];
}

function drawGantt(figure) {
  const { rows, first, window } = figure;
  timelineChart(figure, {
    timeRange: timeInView(figure), yAxis: { label: "request", unit: "" },
    yRange: [first, Math.min(first + window, Math.max(rows.length, 1))],
    yTick: (value) => (Number.isInteger(value) && rows[value] ? rows[value].name : ""),
    paint: (ctx, x, y) => paintGantt(figure, ctx, x, y), cursor: () => figure.cursor,
  });
}

function setGanttCursor(figure, row, seconds) {
  figure.row = row;
  figure.cursor = { x: seconds, low: row, high: row + 1 };
  figure.chart.draw();
}

function moveGanttCursor(figure, key) {
  const { rows } = figure;
  if (rows.length === 0 || !["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End"].includes(key)) return null;
  let row = figure.row ?? figure.first, index = figure.span ?? 0;
  if (key === "ArrowUp" || key === "ArrowDown") {
    row += figure.row === undefined ? 0 : key === "ArrowUp" ? -1 : 1;
    index = 0;
  } else {
    const last = rows[row].spans.length - 1;
    index = { ArrowLeft: index - 1, ArrowRight: figure.row === undefined ? 0 : index + 1, Home: 0, End: last }[key];
  }
  const lastRow = Math.min(figure.first + figure.window, rows.length) - 1;
  row = Math.max(figure.first, Math.min(lastRow, row));
  figure.span = Math.max(0, Math.min(rows[row].spans.length - 1, index));
  const span = rows[row].spans[figure.span];
  setGanttCursor(figure, row, span ? span[0] : 0);
  return ganttLine(figure, row, span);
}

function ganttSource(figure) {
  const places = figure.rows.flatMap((row) => row.spans.map((span) => [row.name, span]));
  return {
    columns: ["request", "phase", "begin (s)", "end (s)"], count: places.length,
    row: (i) => [places[i][0], figure.data.phases[places[i][1][2]], places[i][1][0], places[i][1][1]],
  };
}

function addGanttControls(figure) {
  const total = figure.rows.length, sizes = kWindows.filter((size) => size < total);
  if (sizes.length === 0) return;
  const reset = () => {
    figure.row = undefined;
    figure.cursor = null;
    slider.max = String(Math.max(0, total - figure.window));
    sliderLabel.hidden = figure.window >= total;
    figure.redraw();
  };
  const [selectLabel, select] = labelledSelect("Requests in view",
    [...sizes.map((size) => [String(size), kWhole.format(size)]), [String(total), `all ${kWhole.format(total)}`]],
    (value) => {
      figure.window = Number(value);
      figure.first = Math.min(figure.first, Math.max(0, total - figure.window));
      reset();
    });
  const [sliderLabel, slider] = labelledSlider("First", 0, (value) => {
    figure.first = value;
    reset();
  });
  select.value = String(figure.window);
  slider.max = String(Math.max(0, total - figure.window));
  sliderLabel.hidden = figure.window >= total;
  figure.controls.append(selectLabel, sliderLabel);
}

function startGantt(figure) {
  const { data } = figure, secondsPerTick = data.tick_ns * 1e-9;
  figure.rows = data.rows.map((row) => ({ name: row[0], spans: unpackSpans(row, 1, 1, secondsPerTick) }));
  figure.first = 0;
  figure.window = figure.rows.length <= 150 ? figure.rows.length : 100;
  figure.cursor = null;
  figure.frame.classList.add("tall");
  figure.hint = "Pointer, or arrow keys: up and down for requests, left and right for phases.";
  figure.say("");
  addGanttControls(figure);
  const seen = new Set(figure.rows.flatMap((row) => row.spans.map((span) => span[2])));
  onPointer(figure, (seconds, y) => {
    const row = Math.min(Math.floor(y), figure.rows.length - 1);
    figure.span = Math.max(0, figure.rows[row].spans.findIndex((span) => seconds < span[1]));
    setGanttCursor(figure, row, seconds);
    figure.say(ganttLine(figure, row, spanAt(figure.rows[row].spans, seconds)));
  });
  figure.start({
    source: ganttSource(figure), draw: drawGantt, key: moveGanttCursor,
    legend: data.phases.filter((_, i) => seen.has(i)).map((name) => ({ name, swatch: () => boxSwatch(phaseColour(name), 14 * kPhaseHeights[name]) })),
  });
}
