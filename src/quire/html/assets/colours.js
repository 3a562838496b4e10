// Colours come from page.css alone, so that light, dark and contrast are one file's business. Series differ by dash
// and point as well.
function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const kNumSeriesColours = 8;
const kDashes = [[], [7, 4], [2, 3], [10, 3, 2, 3], [4, 2], [1, 2], [12, 4], [6, 2, 2, 2]];
const kPoints = ["circle", "rect", "triangle", "rectRot", "crossRot", "star", "rectRounded", "cross"];

const seriesColour = (index) => css(`--series-${(index % kNumSeriesColours) + 1}`);
// What is there for comparison only, such as what is left of a budget.
const barColour = (series, index) => (series.muted ? css("--series-muted") : seriesColour(index));
const phaseColour = (name) => css(`--phase-${name}`);
const stateColour = (name) => css(`--state-${name}`);

// '#rrggbb' with an opacity of 0 to 1.
function translucent(colour, opacity) {
  return colour + Math.round(opacity * 255).toString(16).padStart(2, "0");
}
