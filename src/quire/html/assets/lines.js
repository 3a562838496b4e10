// Lines, areas and points over a numeric axis, with marks, limits and a knee.
function seriesPoints(data, series) {
  const x = series.x || data.series[0].x;
  return x.map((value, i) => ({ x: value, y: series.y[i] }));
}

function lineDatasets(figure) {
  const { data, hidden } = figure;
  return data.series.map((series, i) => {
    const points = seriesPoints(data, series), colour = seriesColour(i), isArea = series.draw === "area";
    const few = points.length <= 40;
    return {
      label: series.name, data: points, parsing: false, hidden: hidden.has(series.name),
      type: series.draw === "points" ? "scatter" : "line", showLine: series.draw !== "points",
      borderColor: colour, backgroundColor: translucent(colour, isArea ? 0.45 : 1), borderWidth: 2,
      borderDash: isArea ? [] : kDashes[i % kDashes.length], borderJoinStyle: "round",
      stepped: series.draw === "steps" || series.draw === "area" ? "before" : false,
      fill: isArea ? (data.stacked && i > 0 ? "-1" : "origin") : false,
      pointRadius: series.draw === "points" ? 3 : few && series.draw === "line" ? 3.5 : 0, pointHoverRadius: 5, pointHitRadius: 8,
      pointStyle: kPoints[i % kPoints.length], yAxisID: "y", clip: few ? 8 : undefined,
    };
  });
}

function span(data, axis) {
  let low = Infinity, high = -Infinity;
  for (const series of data.series) {
    for (const value of axis === "x" ? series.x || data.series[0].x : series.y) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  return low <= high ? [low, high] : [0, 1];
}

// The x of all points, if they are so few that each can have its tick.
function fewPlaces(data) {
  if (data.series.some((series) => series.draw !== "line" || series.y.length > 8)) return null;
  const places = [...new Set(data.series.flatMap((series) => series.x || data.series[0].x))];
  return places.length <= 8 ? places.sort((a, b) => a - b) : null;
}

function limitDatasets(figure) {
  const [low, high] = span(figure.data, "x");
  return figure.data.limits.map((limit) => ({
    label: limit.name, data: [{ x: low, y: limit.y }, { x: high, y: limit.y }], parsing: false, type: "line",
    hidden: figure.hidden.has(limit.name), borderColor: css("--limit"), borderWidth: 1.5, borderDash: [3, 3], pointRadius: 0,
    pointHitRadius: 0, yAxisID: "limits",
  }));
}

function markDatasets(figure) {
  return figure.data.marks.map((marks, i) => ({
    label: marks.name, data: marks.x.map((x) => ({ x, y: 1 - 0.05 * i })), parsing: false, type: "scatter",
    hidden: figure.hidden.has(marks.name), pointStyle: "triangle", rotation: 180, pointRadius: 5, clip: 8,
    backgroundColor: css(`--mark-${(i % 2) + 1}`), borderColor: css("--card"), borderWidth: 0.5, yAxisID: "marks",
  }));
}

// A ring on the curve, a line down to the axis, and its words.
const kneePlugin = {
  id: "knee",
  afterDatasetsDraw(chart) {
    const knee = chart.config.options.quireKnee;
    if (!knee) return;
    const { ctx, chartArea, scales } = chart, x = scales.x.getPixelForValue(knee.x), y = scales.y.getPixelForValue(knee.y);
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = css("--knee");
    ctx.lineWidth = 2;
    ctx.setLineDash([4, 4]);
    ctx.beginPath();
    ctx.moveTo(x, y + 9);
    ctx.lineTo(x, chartArea.bottom);
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.beginPath();
    ctx.arc(x, y, 9, 0, 2 * Math.PI);
    ctx.stroke();
    ctx.font = `600 13px ${css("--font")}`;
    const width = ctx.measureText(knee.text).width, fitsLeft = x - width - 16 >= chartArea.left;
    const left = fitsLeft ? x - width - 14 : Math.min(x + 14, chartArea.right - width);
    const place = [Math.max(left, chartArea.left), Math.max(y - 16, chartArea.top + 12)];
    ctx.strokeStyle = css("--card");
    ctx.lineWidth = 5;
    ctx.lineJoin = "round";
    ctx.strokeText(knee.text, ...place);
    ctx.fillText(knee.text, ...place);
    ctx.restore();
  },
};

function lineLine(figure, x, items) {
  const { data } = figure;
  return `${data.x.label} ${formatWithUnit(x, data.x.unit)}: ` +
    items.map(([name, y]) => `${name} ${formatWithUnit(y, data.y.unit)}`).join(", ");
}

// Where the arrow keys stop: the x of the longest series.
function cursorPlaces(data) {
  return data.series.map((series) => series.x || data.series[0].x).reduce((a, b) => (b.length > a.length ? b : a), []);
}

// The last point at or before x.
function valueAt(xs, ys, x) {
  let low = 0, high = xs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low > 0 ? ys[low - 1] : null;
}

const cursorPlugin = {
  id: "cursor",
  afterDatasetsDraw(chart) {
    const x = chart.config.options.quireCursor?.x;
    if (x === undefined || x === null) return;
    const { ctx, chartArea } = chart, at = chart.scales.x.getPixelForValue(x);
    ctx.save();
    ctx.strokeStyle = css("--ink");
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(at, chartArea.top);
    ctx.lineTo(at, chartArea.bottom);
    ctx.stroke();
    ctx.restore();
  },
};

function moveLineCursor(figure, key) {
  const places = cursorPlaces(figure.data);
  if (places.length === 0) return null;
  const step = Math.max(1, Math.round(places.length / 100));
  const at = figure.place ?? -1;
  const moves = { ArrowRight: at + step, ArrowLeft: at < 0 ? places.length - 1 : at - step, Home: 0, End: places.length - 1 };
  if (!(key in moves)) return null;
  figure.place = Math.max(0, Math.min(places.length - 1, moves[key]));
  const x = places[figure.place];
  const items = figure.data.series.filter((series) => !figure.hidden.has(series.name))
    .map((series) => [series.name, valueAt(series.x || figure.data.series[0].x, series.y, x)])
    .filter(([, y]) => y !== null);
  figure.cursor.x = x;
  figure.chart.draw();
  return lineLine(figure, x, items);
}

function drawLines(figure) {
  const { data } = figure, options = commonOptions(data.x, data.y), tooltip = options.plugins.tooltip;
  figure.cursor = { x: null };
  options.quireKnee = data.knee;
  options.quireCursor = figure.cursor;
  options.interaction = { mode: "nearest", axis: "x", intersect: false };
  options.plugins.decimation = { enabled: !data.stacked && !data.x.log, algorithm: "min-max" };
  options.scales.y.stacked = data.stacked;
  if (!data.y.log) options.scales.y.beginAtZero = true;
  const [low, high] = span(data, "x"), isNearZero = !data.x.log && low > 0 && low < high / 20;
  if (low < high) Object.assign(options.scales.x, { min: isNearZero ? 0 : low, max: high });
  const few = fewPlaces(data);
  if (few) {
    options.scales.x.ticks.callback = axisTick(data.x);
    options.scales.x.afterBuildTicks = (scale) => { scale.ticks = few.map((value) => ({ value })); };
  }
  options.scales.marks = { display: false, min: 0, max: 1, position: "right" };
  // Limits lie on the same scale without being stacked on the series.
  const highest = Math.max(0, ...data.limits.map((limit) => limit.y));
  if (highest > 0) options.scales.y.suggestedMax = highest * (data.y.log ? 1 : 1.02);
  options.scales.limits = {
    type: options.scales.y.type, display: false, position: "right",
    afterDataLimits(scale) {
      Object.assign(scale, { min: scale.chart.scales.y.min, max: scale.chart.scales.y.max });
    },
    afterBuildTicks(scale) {
      Object.assign(scale, { min: scale.chart.scales.y.min, max: scale.chart.scales.y.max });
    },
  };
  tooltip.callbacks = {
    title: (items) => (items.length ? `${data.x.label} ${formatWithUnit(items[0].parsed.x, data.x.unit)}` : ""),
    label: (item) => (item.dataset.yAxisID === "marks" ? item.dataset.label
      : `${item.dataset.label}: ${formatWithUnit(item.parsed.y, data.y.unit)}`),
  };
  figure.chart = new Chart(figure.canvas, {
    type: "line", options, plugins: [kneePlugin, cursorPlugin],
    data: { datasets: [...lineDatasets(figure), ...limitDatasets(figure), ...markDatasets(figure)] },
  });
}

function lineSource(data) {
  const x = columnTitle(data.x.label, data.x.unit), title = (series) => columnTitle(series.name, data.y.unit);
  if (data.series.length > 0 && data.series.every((series, i) => i === 0 || !series.x)) {
    return {
      columns: [x, ...data.series.map(title)], count: data.series[0].x.length,
      row: (i) => [data.series[0].x[i], ...data.series.map((series) => series.y[i])],
    };
  }
  const places = data.series.flatMap((series) => series.y.map((y, i) => [series, i]));
  return {
    columns: ["series", x, columnTitle(data.y.label, data.y.unit)], count: places.length,
    row: (k) => {
      const [series, i] = places[k];
      return [series.name, (series.x || data.series[0].x)[i], series.y[i]];
    },
  };
}

function lineKind(data) {
  const entries = data.series.map((series, i) => ({
    name: series.name, swatch: () => lineSwatch(seriesColour(i), kDashes[i % kDashes.length], series.draw === "area"),
  }));
  for (const limit of data.limits) entries.push({ name: limit.name, swatch: () => lineSwatch(css("--limit"), [3, 3]) });
  data.marks.forEach((marks, i) =>
    entries.push({ name: marks.name, swatch: () => pointSwatch(css(`--mark-${(i % 2) + 1}`)) }));
  return { source: lineSource(data), draw: drawLines, key: moveLineCursor, legend: entries };
}
