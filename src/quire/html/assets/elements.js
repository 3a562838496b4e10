// element("p", {class: "note"}, "text", child, ...). Text is always text: nothing here reads markup.
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function svgElement(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// A labelled <select>; options are [value, text].
function labelledSelect(label, options, onChange) {
  const select = element("select", {}, ...options.map(([value, text]) => element("option", { value }, text)));
  select.addEventListener("change", () => onChange(select.value));
  return [element("label", { class: "control" }, `${label} `, select), select];
}

// A labelled slider over 0..max.
function labelledSlider(label, max, onInput) {
  const slider = element("input", { type: "range", min: "0", max: String(max), value: "0" });
  slider.addEventListener("input", () => onInput(Number(slider.value)));
  return [element("label", { class: "control grow" }, `${label} `, slider), slider];
}
