// What every picture has: a legend of buttons, a canvas that takes the keyboard, a line that says what the cursor is on
// (read out by screen readers), controls, and the data.
//
// A kind of chart provides
//     source            for data_table.js
//     draw(figure)      makes figure.chart on figure.canvas, from the colours of now
//     key(figure, name) moves the cursor for an arrow key, Home or End and returns the line to show; null: not its key
//     legend            [{name, swatch() -> Node}]; a legend entry's button hides and shows it, figure.hidden has it
// and may add controls before start().
class Figure {
  constructor(data, holder, index) {
    this.data = data;
    this.hidden = new Set();
    this.hint = "Pointer or arrow keys: read the values.";
    this.legend = element("div", { class: "legend", role: "group", "aria-label": "Series" });
    this.canvas = element("canvas", {
      tabindex: "0", role: "img", "aria-label": `${data.title}. ${data.summary}`, "aria-describedby": `readout-${index}`,
    });
    this.frame = element("div", { class: "frame" }, this.canvas);
    this.readout = element("p", { class: "readout", id: `readout-${index}`, "aria-live": "polite" }, this.hint);
    this.controls = element("div", { class: "controls" });
    holder.append(this.legend, this.controls, this.frame, this.readout);
    this.holder = holder;
  }

  start(kind) {
    this.kind = kind;
    this.makeLegend();
    if (!this.controls.childElementCount) this.controls.remove();
    if (this.data.note) this.holder.append(element("p", { class: "note" }, this.data.note));
    this.holder.append(dataTable(this.data.title, kind.source));
    this.canvas.addEventListener("keydown", (event) => {
      const line = kind.key ? kind.key(this, event.key) : null;
      if (line === null) return;
      event.preventDefault();
      this.say(line);
    });
    this.redraw();
  }

  makeLegend() {
    const entries = this.kind.legend || [];
    this.legend.replaceChildren(...entries.map((entry) => {
      const button = element("button", { type: "button", "aria-pressed": String(!this.hidden.has(entry.name)) },
        entry.swatch(), entry.name);
      button.addEventListener("click", () => {
        if (!this.hidden.delete(entry.name)) this.hidden.add(entry.name);
        button.setAttribute("aria-pressed", String(!this.hidden.has(entry.name)));
        this.redraw();
      });
      return button;
    }));
    this.legend.hidden = entries.length === 0;
  }

  say(line) {
    this.readout.textContent = line || this.hint;
  }

  redraw() {
    if (this.chart) this.chart.destroy();
    this.kind.draw(this);
  }

  // Colours have changed.
  restyle() {
    this.makeLegend();
    this.redraw();
  }
}

function lineSwatch(colour, dash, fill) {
  const svg = svgElement("svg", { width: "26", height: "12", "aria-hidden": "true" });
  if (fill) svg.append(svgElement("rect", { x: "0", y: "1", width: "26", height: "11", fill: colour, "fill-opacity": "0.45" }));
  svg.append(svgElement("line", { x1: "0", y1: fill ? "1.5" : "6", x2: "26", y2: fill ? "1.5" : "6", stroke: colour,
    "stroke-width": "2.5", "stroke-dasharray": fill ? "" : dash.join(" ") }));
  return svg;
}

function boxSwatch(colour, height = 12) {
  const svg = svgElement("svg", { width: "14", height: "14", "aria-hidden": "true" });
  svg.append(svgElement("rect", { x: "0", y: String((14 - height) / 2), width: "14", height: String(height), fill: colour }));
  return svg;
}

function stripedSwatch(colours) {
  const svg = svgElement("svg", { width: "24", height: "14", "aria-hidden": "true" });
  colours.forEach((colour, i) => svg.append(svgElement("rect", { x: String(8 * i), y: "1", width: "8", height: "12", fill: colour })));
  return svg;
}

function pointSwatch(colour) {
  return svgElement("svg", { width: "14", height: "12", "aria-hidden": "true" },
    svgElement("path", { d: "M2 1 L12 1 L7 11 Z", fill: colour }));
}

// What all charts of the library share.
function commonOptions(x, y) {
  const ink = css("--ink-soft"), grid = css("--grid"), font = { size: 12, family: css("--font") };
  const scale = (axis, more) => ({
    type: axis.log ? "logarithmic" : "linear",
    title: { display: true, text: axisTitle(axis), color: ink, font },
    ticks: { color: ink, font, callback: axis.log ? logTick(axis) : axisTick(axis), maxRotation: 0, autoSkipPadding: 14, includeBounds: false },
    grid: { color: grid, borderColor: css("--line") },
    ...more,
  });
  return {
    responsive: true, maintainAspectRatio: false, animation: false, locale: "en-US",
    layout: { padding: { top: 8, right: 10 } },
    scales: { x: scale(x, {}), y: scale(y, {}) },
    plugins: {
      legend: { display: false },
      tooltip: {
        backgroundColor: css("--tip"), titleColor: css("--tip-ink"), bodyColor: css("--tip-ink"), titleFont: font,
        bodyFont: font, boxPadding: 4, padding: 8,
      },
    },
  };
}
