// Finds each figure's place and its data, and follows the reader's light or dark setting.
function startFigure(data, holder, index) {
  if (data.kind === "comparison") return new ComparisonFigure(data, holder);
  const figure = new Figure(data, holder, index);
  if (data.kind === "gantt") startGantt(figure);
  else if (data.kind === "film") startFilm(figure);
  else figure.start(data.kind === "bars" ? barKind(data) : lineKind(data));
  return figure;
}

const allCharts = JSON.parse(document.getElementById("charts").textContent);
const figures = [...document.querySelectorAll("figure[data-chart]")].map((place) => {
  const index = Number(place.dataset.chart);
  return startFigure(allCharts[index], place.querySelector(".picture"), index);
});

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const figure of figures) figure.restyle();
});
