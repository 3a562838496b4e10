// What Gantt charts and films share: axes by the library, a body of many thousand boxes that is painted once and kept
// as a picture, and a cursor on top of it.

// (gap, length, ...what) lists to spans [begin, end, ...what], in seconds.
function unpackSpans(list, from, numWhat, secondsPerTick) {
  const spans = [];
  let at = 0;
  for (let i = from; i < list.length; i += 2 + numWhat) {
    const begin = at + list[i];
    at = begin + list[i + 1];
    spans.push([begin * secondsPerTick, at * secondsPerTick, ...list.slice(i + 2, i + 2 + numWhat)]);
  }
  return spans;
}

// The span of a sorted list that contains `seconds`, or null.
function spanAt(spans, seconds) {
  let low = 0, high = spans.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle][0] <= seconds) low = middle + 1;
    else high = middle;
  }
  return low > 0 && seconds < spans[low - 1][1] ? spans[low - 1] : null;
}

// A box in whole pixels, never less than one wide and high.
function fillBox(ctx, left, top, right, bottom) {
  const x = Math.round(left), y = Math.round(top);
  ctx.fillRect(x, y, Math.max(1, Math.round(right) - x), Math.max(1, Math.round(bottom) - y));
}

// paint(ctx, x, y) fills the body; x and y turn values into pixels. cursor: {x, low, high} in values, or null.
function timelineChart(figure, { timeRange, yAxis, yRange, yTick, paint, cursor }) {
  const options = commonOptions({ label: "time", unit: "s" }, yAxis);
  Object.assign(options.scales.x, { min: timeRange[0], max: timeRange[1] });
  Object.assign(options.scales.y, { min: yRange[0], max: yRange[1], reverse: true });
  options.scales.y.ticks.precision = 0;
  options.scales.y.ticks.callback = yTick;
  options.scales.y.grid.display = false;
  options.plugins.tooltip.enabled = false;
  options.events = [];
  let kept = null, keptSize = "";
  const body = {
    id: "body",
    beforeDatasetsDraw(chart) {
      const { ctx, chartArea, scales } = chart, ratio = chart.currentDevicePixelRatio;
      const width = Math.max(1, Math.round(chartArea.width)), height = Math.max(1, Math.round(chartArea.height));
      if (keptSize !== `${width} ${height} ${ratio}`) {
        keptSize = `${width} ${height} ${ratio}`;
        kept = element("canvas", { width: Math.ceil(width * ratio), height: Math.ceil(height * ratio) });
        const under = kept.getContext("2d");
        under.scale(ratio, ratio);
        paint(under, (value) => scales.x.getPixelForValue(value) - chartArea.left,
          (value) => scales.y.getPixelForValue(value) - chartArea.top);
      }
      ctx.drawImage(kept, chartArea.left, chartArea.top, width, height);
      const place = cursor();
      if (!place) return;
      const x = scales.x.getPixelForValue(place.x);
      ctx.save();
      ctx.strokeStyle = css("--ink");
      ctx.lineWidth = 1.5;
      ctx.beginPath();
      ctx.moveTo(x, chartArea.top);
      ctx.lineTo(x, chartArea.bottom);
      ctx.stroke();
      if (place.high !== undefined) {
        const top = scales.y.getPixelForValue(place.low), bottom = scales.y.getPixelForValue(place.high);
        ctx.strokeRect(chartArea.left + 1, Math.min(top, bottom - 4), chartArea.width - 2, Math.max(4, bottom - top));
      }
      ctx.restore();
    },
  };
  figure.chart = new Chart(figure.canvas, { type: "scatter", options, data: { datasets: [] }, plugins: [body] });
}

// Calls with (seconds, y) of the pointer while it is over the body; the listener stays when the chart is redrawn.
function onPointer(figure, call) {
  figure.canvas.addEventListener("pointermove", (event) => {
    const { chartArea, scales } = figure.chart, box = figure.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    if (x < chartArea.left || x > chartArea.right || y < chartArea.top || y > chartArea.bottom) return;
    call(scales.x.getValueForPixel(x), scales.y.getValueForPixel(y));
  });
}
