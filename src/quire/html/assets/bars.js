// Bars over categories, and the small bar charts of a comparison.
// Words of a name in lines of about so many characters, for the axis.
function nameLines(name, width) {
  const lines = [];
  for (const word of name.split(" ")) {
    const last = lines[lines.length - 1];
    if (last !== undefined && last.length + 1 + word.length <= width) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines;
}

// Bars that lie have room for every name; the figure grows with them.
function layBarsDown(figure, options) {
  const { data } = figure, narrow = figure.frame.clientWidth < 640;
  const names = data.categories.map((name) => nameLines(name, narrow ? 16 : 48));
  const thick = data.stacked ? 22 : 15 * data.series.length;
  figure.frame.style.height = `${64 + names.reduce((sum, lines) => sum + Math.max(thick, 15 * lines.length) + 12, 0)}px`;
  options.indexAxis = "y";
  options.scales.y.ticks = { color: css("--ink"), font: { size: 12, family: css("--font") }, autoSkip: false, callback: (_, i) => names[i] };
  options.scales.y.title = { display: false };
}

function drawBars(figure) {
  const { data } = figure, lying = data.names_all;
  const options = lying ? commonOptions(data.y, data.x) : commonOptions(data.x, data.y);
  const [along, across] = lying ? ["y", "x"] : ["x", "y"];  // the axis of the categories, and that of the values
  const alone = data.series.length === 1, dense = !lying && data.categories.length > 12;
  options.interaction = { mode: "index", intersect: false, axis: along };
  options.scales[along] = { ...options.scales[along], type: "category", stacked: data.stacked };
  options.scales[along].ticks = { ...options.scales[along].ticks, callback(value) { return this.getLabelForValue(value); } };
  options.scales[along].grid = { ...options.scales[along].grid, display: false };
  options.scales[across].stacked = data.stacked;
  if (!data.y.log) options.scales[across].beginAtZero = true;
  if (lying) layBarsDown(figure, options);
  options.plugins.tooltip.callbacks = {
    title: (items) => (items.length ? `${data.x.label} ${items[0].label}${data.x.unit ? ` ${data.x.unit}` : ""}` : ""),
    label: (item) => `${item.dataset.label}: ${formatWithUnit(item.parsed[across], data.y.unit)}`,
  };
  figure.chart = new Chart(figure.canvas, {
    type: "bar", options,
    data: {
      labels: data.categories,
      datasets: data.series.map((series, i) => ({
        label: series.name, data: series.y, hidden: figure.hidden.has(series.name), backgroundColor: barColour(series, i),
        borderColor: css("--card"), borderWidth: dense ? { top: data.stacked ? 1 : 0 } : 1, maxBarThickness: lying ? 24 : undefined,
        categoryPercentage: (alone && !lying) || (dense && data.stacked) ? 1 : 0.8, barPercentage: dense ? 0.96 : 0.9,
      })),
    },
  });
}

function moveBarCursor(figure, key) {
  const { data } = figure, count = data.categories.length, at = figure.place ?? -1;
  const moves = { ArrowRight: at + 1, ArrowLeft: at < 0 ? count - 1 : at - 1, Home: 0, End: count - 1 };
  if (data.names_all) Object.assign(moves, { ArrowDown: moves.ArrowRight, ArrowUp: moves.ArrowLeft });
  if (!(key in moves) || count === 0) return null;
  figure.place = Math.max(0, Math.min(count - 1, moves[key]));
  const shown = data.series.map((series, datasetIndex) => ({ series, datasetIndex }))
    .filter(({ series }) => !figure.hidden.has(series.name));
  const active = shown.map(({ datasetIndex }) => ({ datasetIndex, index: figure.place }));
  figure.chart.setActiveElements(active);
  figure.chart.tooltip.setActiveElements(active, { x: 0, y: 0 });
  figure.chart.draw();
  return `${data.x.label} ${data.categories[figure.place]}${data.x.unit ? ` ${data.x.unit}` : ""}: ` +
    shown.map(({ series }) => `${series.name} ${formatWithUnit(series.y[figure.place], data.y.unit)}`).join(", ");
}

function barKind(data) {
  const single = data.series.length < 2;
  return {
    draw: drawBars, key: moveBarCursor,
    legend: single ? [] : data.series.map((series, i) => ({ name: series.name, swatch: () => boxSwatch(barColour(series, i)) })),
    source: {
      columns: [columnTitle(data.x.label, data.x.unit), ...data.series.map((series) => columnTitle(series.name, data.y.unit))],
      count: data.categories.length, row: (i) => [data.categories[i], ...data.series.map((series) => series.y[i])],
    },
  };
}

// The value at the end of each bar.
const valuePlugin = {
  id: "values",
  afterDatasetsDraw(chart) {
    const { ctx, chartArea } = chart, { unit, best } = chart.config.options.quireMetric;
    ctx.save();
    ctx.textBaseline = "middle";
    chart.getDatasetMeta(0).data.forEach((bar, i) => {
      const value = chart.data.datasets[0].data[i], text = (unit === "bytes" ? formatBytes(value) : formatNumber(value)) + (value === best ? " ★" : "");
      ctx.font = `${value === best ? 600 : 400} 12px ${css("--font")}`;
      ctx.fillStyle = css("--ink");
      ctx.fillText(text, Math.min(Math.max(bar.x, bar.base) + 6, chartArea.right + 84 - ctx.measureText(text).width), bar.y);
    });
    ctx.restore();
  },
};

function bestOf(metric) {
  if (metric.better === "lower") return Math.min(...metric.values);
  return metric.better === "higher" ? Math.max(...metric.values) : null;
}

function drawMetric(canvas, data, metric) {
  const options = commonOptions({ label: "", unit: metric.unit }, { label: "", unit: "" }), best = bestOf(metric);
  options.indexAxis = "y";
  options.quireMetric = { unit: metric.unit, best };
  options.layout.padding = { right: 84, top: 0 };
  options.scales.x.title.display = options.scales.y.title.display = false;
  options.scales.x.beginAtZero = true;
  options.scales.x.ticks.display = false;  // the values stand beside the bars
  options.scales.y = { ...options.scales.y, type: "category", grid: { display: false, borderColor: css("--line") } };
  options.scales.y.ticks = { color: css("--ink"), font: { size: 12, family: css("--font") }, autoSkip: false };
  options.plugins.tooltip.enabled = false;
  return new Chart(canvas, {
    type: "bar", options, plugins: [valuePlugin],
    data: {
      labels: data.contenders,
      datasets: [{ data: metric.values, backgroundColor: data.contenders.map((_, i) => seriesColour(i)), maxBarThickness: 22 }],
    },
  });
}

// Many canvases in one figure: it has no Figure, but the same restyle().
class ComparisonFigure {
  constructor(data, holder) {
    this.data = data;
    const grid = element("div", { class: "metrics" });
    this.canvases = data.metrics.map((metric) => {
      const values = data.contenders.map((name, i) => `${name} ${formatWithUnit(metric.values[i], metric.unit)}`).join(", ");
      const canvas = element("canvas", { role: "img", tabindex: "0", "aria-label": `${metric.name}: ${values}` });
      const frame = element("div", { class: "metric-frame" }, canvas);
      frame.style.height = `${34 + 28 * data.contenders.length}px`;
      const better = metric.better ? element("span", { class: "better" }, `${metric.better} is better`) : "";
      grid.append(element("div", { class: "metric" }, element("h4", {}, columnTitle(metric.name, metric.unit), " ", better), frame));
      return canvas;
    });
    holder.append(grid);
    if (data.note) holder.append(element("p", { class: "note" }, data.note));
    holder.append(dataTable(data.title, {
      columns: [data.what, ...data.metrics.map((metric) => columnTitle(metric.name, metric.unit))],
      count: data.contenders.length, row: (i) => [data.contenders[i], ...data.metrics.map((metric) => metric.values[i])],
    }));
    this.restyle();
  }

  restyle() {
    for (const chart of this.charts || []) chart.destroy();
    this.charts = this.canvases.map((canvas, i) => drawMetric(canvas, this.data, this.data.metrics[i]));
  }
}
