// Numbers as text.
const kFourDigits = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });
const kWhole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const kBytePrefixes = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function formatNumber(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e12)) return value.toExponential(3);
  return size >= 1e4 ? kWhole.format(value) : kFourDigits.format(value);
}

function formatBytes(value) {
  let prefix = 0;
  for (; Math.abs(value) >= 1024 && prefix + 1 < kBytePrefixes.length; ++prefix) value /= 1024;
  return `${kFourDigits.format(value)} ${kBytePrefixes[prefix]}`;
}

function formatWithUnit(value, unit) {
  if (unit === "bytes") return formatBytes(value);
  return unit ? `${formatNumber(value)} ${unit}` : formatNumber(value);
}

const axisTick = (axis) => (value) => (axis.unit === "bytes" ? formatBytes(value) : formatNumber(value));
// 1, 2 and 5 of each power of ten: the others would run into each other.
const logTick = (axis) => (value) => {
  const digit = value / 10 ** Math.floor(Math.log10(value) + 1e-9);
  return [1, 2, 5].some((shown) => Math.abs(digit - shown) < 1e-6) ? axisTick(axis)(value) : "";
};
const axisTitle = (axis) => (axis.unit && axis.unit !== "bytes" ? `${axis.label} (${axis.unit})` : axis.label);
const columnTitle = (label, unit) => (unit ? `${label} (${unit})` : label);

// Seconds, with digits that suit how far apart things are.
function formatSeconds(seconds) {
  if (seconds === 0) return "0 s";
  if (seconds < 1e-3) return `${kFourDigits.format(seconds * 1e6)} µs`;
  if (seconds < 1) return `${kFourDigits.format(seconds * 1e3)} ms`;
  return `${seconds.toLocaleString("en-US", { maximumFractionDigits: 3 })} s`;
}
