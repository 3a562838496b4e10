// Every physical block over time, and below it the pool at one moment, which a slider moves and a button plays.
const kFrames = 240;
// Those that no state has.
const kOwnerSeries = [0, 1, 2, 3, 6, 7];

function runColour(figure, state, owner) {
  if (figure.colouring === "owner" && owner > 0 && figure.data.states[state] === "used") return figure.ownerColours[owner % kOwnerSeries.length];
  return figure.stateColours[state];
}

function filmLine(figure, block, run, seconds) {
  const where = `block ${kWhole.format(block * figure.data.every)} at ${formatSeconds(seconds)}`;
  if (!run) return `${where}: free`;
  const owner = run[3] > 0 ? `, request ${run[3]}` : "";
  return `${where}: ${figure.data.states[run[2]]}${owner}, from ${formatSeconds(run[0])} to ${formatSeconds(run[1])}`;
}

function paintFilm(figure, ctx, x, y) {
  figure.blocks.forEach((runs, block) => {
    for (const [begin, end, state, owner] of runs) {
      if (figure.hidden.has(figure.data.states[state])) continue;
      ctx.fillStyle = runColour(figure, state, owner);
      fillBox(ctx, x(begin), y(block), x(end), y(block + 1));
    }
  });
}

// The pool as a grid of blocks, as square as the width allows.
function paintFrame(figure) {
  const { blocks, frameCanvas, hidden, data } = figure, ratio = window.devicePixelRatio || 1;
  const width = frameCanvas.parentElement.clientWidth, count = Math.max(1, blocks.length);
  const cell = Math.max(4, Math.min(18, Math.floor(Math.sqrt((width * 150) / count))));
  const columns = Math.max(1, Math.floor(width / cell)), rows = Math.ceil(count / columns), gap = cell > 6 ? 2 : 1;
  frameCanvas.width = width * ratio;
  frameCanvas.height = rows * cell * ratio;
  frameCanvas.style.width = `${width}px`;
  frameCanvas.style.height = `${rows * cell}px`;
  const ctx = frameCanvas.getContext("2d"), counts = data.states.map(() => 0), free = css("--state-free");
  ctx.scale(ratio, ratio);
  blocks.forEach((runs, block) => {
    const run = spanAt(runs, figure.seconds);
    if (run) ++counts[run[2]];
    ctx.fillStyle = run && !hidden.has(data.states[run[2]]) ? runColour(figure, run[2], run[3]) : free;
    ctx.fillRect((block % columns) * cell, Math.floor(block / columns) * cell, cell - gap, cell - gap);
  });
  const parts = figure.seen.map((state) => `${counts[state]} ${data.states[state]}`);
  const words = `${formatSeconds(figure.seconds)}: ${parts.join(", ")}, ${blocks.length - counts.reduce((a, b) => a + b, 0)} free`;
  figure.frameWords.textContent = words;
  frameCanvas.setAttribute("aria-label", `The pool at ${words}`);
}

function showMoment(figure, seconds) {
  figure.seconds = Math.max(0, Math.min(seconds, figure.lastMoment));
  figure.slider.value = String(Math.round((figure.seconds / figure.endSeconds) * kFrames));
  figure.slider.setAttribute("aria-valuetext", formatSeconds(figure.seconds));
  figure.chart.draw();
  paintFrame(figure);
}

function drawFilm(figure) {
  const { data, blocks } = figure;
  figure.stateColours = data.states.map(stateColour);
  figure.ownerColours = kOwnerSeries.map(seriesColour);
  timelineChart(figure, {
    timeRange: [0, figure.endSeconds], yAxis: { label: "block", unit: "" }, yRange: [0, Math.max(blocks.length, 1)],
    yTick: (value) => (Number.isInteger(value) ? kWhole.format(value * data.every) : ""),
    paint: (ctx, x, y) => paintFilm(figure, ctx, x, y),
    cursor: () => ({ x: figure.seconds, low: figure.block, high: figure.block === undefined ? undefined : figure.block + 1 }),
  });
  paintFrame(figure);
}

function moveFilmCursor(figure, key) {
  if (figure.blocks.length === 0) return null;
  const step = figure.endSeconds / kFrames, block = figure.block ?? 0;
  const moves = {
    ArrowUp: [block - 1, 0], ArrowDown: [figure.block === undefined ? 0 : block + 1, 0], ArrowLeft: [block, -step],
    ArrowRight: [block, step], Home: [block, -Infinity], End: [block, Infinity],
  };
  if (!(key in moves)) return null;
  figure.block = Math.max(0, Math.min(figure.blocks.length - 1, moves[key][0]));
  showMoment(figure, figure.seconds + moves[key][1]);
  return filmLine(figure, figure.block, spanAt(figure.blocks[figure.block], figure.seconds), figure.seconds);
}

function togglePlay(figure, button) {
  if (figure.timer) {
    clearInterval(figure.timer);
    figure.timer = null;
  } else {
    if (figure.seconds >= figure.lastMoment) figure.seconds = 0;
    figure.timer = setInterval(() => {
      showMoment(figure, figure.seconds + figure.endSeconds / kFrames);
      if (figure.seconds >= figure.lastMoment) togglePlay(figure, button);
    }, 50);
  }
  button.textContent = figure.timer ? "Pause" : "Play";
}

function addFilmControls(figure) {
  const [label, select] = labelledSelect("Colour by", [["state", "state"], ["owner", "owner"]], (value) => {
    figure.colouring = value;
    figure.restyle();
  });
  select.value = figure.colouring;
  figure.controls.append(label);
  const button = element("button", { type: "button", class: "play" }, "Play");
  button.addEventListener("click", () => togglePlay(figure, button));
  const [sliderLabel, slider] = labelledSlider("Moment", kFrames, (value) =>
    showMoment(figure, (value / kFrames) * figure.endSeconds));
  figure.slider = slider;
  figure.frameCanvas = element("canvas", { role: "img" });
  figure.frameWords = element("p", { class: "readout" });
  figure.holder.append(element("div", { class: "controls" }, button, sliderLabel), figure.frameWords,
    element("div", { class: "pool" }, figure.frameCanvas));
}

function filmSource(figure) {
  const places = figure.blocks.flatMap((runs, block) => runs.map((run) => [block, run]));
  return {
    columns: ["block", "state", "request", "begin (s)", "end (s)"], count: places.length,
    row: (i) => {
      const [block, run] = places[i];
      return [block * figure.data.every, figure.data.states[run[2]], run[3] > 0 ? run[3] : "", run[0], run[1]];
    },
  };
}

function startFilm(figure) {
  const { data } = figure;
  figure.blocks = data.blocks.map((list) => unpackSpans(list, 0, 2, data.tick_ns * 1e-9));
  figure.seen = [...new Set(figure.blocks.flatMap((runs) => runs.map((run) => run[2])))].sort();
  figure.endSeconds = Math.max(data.end_ns, 1) * 1e-9;
  figure.lastMoment = figure.endSeconds * (1 - 1e-9);
  figure.seconds = figure.endSeconds / 2;
  figure.colouring = figure.blocks.every((runs) => runs.every((run) => run[2] === 0)) ? "owner" : "state";
  figure.frame.classList.add("tall");
  figure.hint = "Pointer, or arrow keys: up and down for blocks, left and right for time.";
  figure.say("");
  addFilmControls(figure);
  figure.slider.value = String(kFrames / 2);
  onPointer(figure, (seconds, y) => {
    const block = Math.min(Math.floor(y), figure.blocks.length - 1);
    figure.say(filmLine(figure, block, spanAt(figure.blocks[block], seconds), seconds));
  });
  figure.canvas.addEventListener("click", (event) => {
    const box = figure.canvas.getBoundingClientRect();
    showMoment(figure, figure.chart.scales.x.getValueForPixel(event.clientX - box.left));
  });
  new ResizeObserver(() => paintFrame(figure)).observe(figure.frameCanvas.parentElement);
  const swatch = (name) => () => (figure.colouring === "owner" && name === "used"
    ? stripedSwatch([0, 1, 2].map(seriesColour)) : boxSwatch(stateColour(name)));
  figure.start({
    source: filmSource(figure), draw: drawFilm, key: moveFilmCursor,
    legend: figure.seen.map((state) => ({ name: data.states[state], swatch: swatch(data.states[state]) })),
  });
}
