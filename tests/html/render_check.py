#!/usr/bin/env python3
"""Renders a page with every kind of chart in headless Chromium and looks at it as a reader would.

  tests/html/render_check.py --tool build/sample_page --binary build/quire --model MODEL.gguf --out build/html [--browser chromium]

At 360 and 1,600 px of width, light and dark: no error, no request, every canvas drawn, nothing wider than the window,
every control reached by the keyboard and doing something, enough contrast, colours that colour-blind eyes tell apart.
The pictures are kept in --out. Prints `N passed, 0 failed`.
"""
import argparse
import base64
import itertools
import shutil
import subprocess
import sys
from pathlib import Path

from browser import Browser

WIDTHS = (360, 1600)
WIDTHS_BETWEEN = (480, 768, 1100)  # looked at for overflow only
SCHEMES = ("light", "dark")

# Pixels of a canvas that differ from its most frequent colour, and how many colours there are.
DRAWN = """[...document.querySelectorAll('canvas')].map((canvas) => {
  const box = canvas.getBoundingClientRect();
  if (!canvas.width || !canvas.height) return {label: canvas.getAttribute('aria-label'), colours: 0, drawn: 0, width: box.width};
  const pixels = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  const counts = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) || 0) + 1);
  const most = Math.max(...counts.values());
  return {label: canvas.getAttribute('aria-label'), colours: counts.size, drawn: pixels.length - most, width: box.width};
})"""

OVERFLOW = """(() => {
  const width = document.documentElement.clientWidth;
  const inScroller = (node) => node.closest('.scroll, .command, caption.hidden') && !node.matches('.scroll, .command');
  return [...document.body.querySelectorAll('*')].filter((node) => !inScroller(node) && node.getBoundingClientRect().right > width + 0.5)
    .map((node) => node.tagName + '.' + node.className).slice(0, 5)
    .concat(document.documentElement.scrollWidth > width ? ['page scrolls sideways: ' + document.documentElement.scrollWidth] : []);
})()"""

FOCUSABLE = """[...document.querySelectorAll('a[href], button, select, input, summary, [tabindex="0"]')]
  .filter((node) => !node.disabled && node.checkVisibility())
  .map((node, index) => { node.dataset.probe = index; return index; }).length"""

FOCUSED = """(() => {
  const node = document.activeElement, style = getComputedStyle(node);
  return {probe: node.dataset ? node.dataset.probe ?? null : null, outline: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
    name: node.getAttribute('aria-label') || node.textContent.trim() || (node.labels && node.labels[0] ? node.labels[0].textContent.trim() : ''),
    tag: node.tagName, label: node.outerHTML.slice(0, 90)};
})()"""

VARIABLES = """(() => {
  const style = getComputedStyle(document.documentElement), names = %s;
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue('--' + name).trim()]));
})()"""

TEXT_COLOURS = ("ink", "ink-soft", "accent", "holds", "fails")
GRAPHIC_COLOURS = tuple(f"series-{i}" for i in range(1, 9)) + tuple(
    f"phase-{name}" for name in ("queued", "prefill", "decode", "preempted", "restored")) + tuple(
    f"state-{name}" for name in ("used", "shared", "cached", "reserved")) + ("limit", "knee", "mark-1", "mark-2")
# Colours that stand beside each other without another difference than the legend's order.
NEIGHBOURS = (tuple(f"series-{i}" for i in range(1, 6)), ("state-used", "state-shared", "state-cached", "state-reserved", "state-free"),
              tuple(f"phase-{name}" for name in ("prefill", "decode", "preempted", "restored")))

# Machado, Oliveira, Fernandes 2009, severity 1, for linear RGB.
COLOUR_BLIND = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def linear(colour):
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def contrast(a, b):
    """WCAG 2."""
    lights = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (linear(a), linear(b)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def lab(rgb):
    """Linear sRGB to CIELAB, D65."""
    rows = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))
    xyz = [sum(c * v for c, v in zip(row, rgb)) / white for row, white in zip(rows, (0.95047, 1, 1.08883))]
    x, y, z = [v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz]
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(a, b, eyes):
    seen = []
    for colour in (a, b):
        rgb = linear(colour)
        seen.append(lab([min(1, max(0, sum(c * v for c, v in zip(row, rgb)))) for row in COLOUR_BLIND[eyes]]))
    return sum((p - q) ** 2 for p, q in zip(*seen)) ** 0.5


class Check:
    def __init__(self):
        self.passed, self.failed = 0, []

    def that(self, holds, message):
        if holds:
            self.passed += 1
        else:
            self.failed.append(message)
            print(f"FAILED {message}", file=sys.stderr)


def open_page(browser, url, width, scheme):
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme},
                                                         {"name": "prefers-reduced-motion", "value": "reduce"}])
    browser.call("Page.navigate", url=url)
    browser.wait_for("Page.loadEventFired")
    # Two frames: observers of sizes have run and painted.
    browser.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def screenshot(browser, path):
    size = browser.call("Page.getLayoutMetrics")["cssContentSize"]
    clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16000), "scale": 1}
    data = browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
    path.write_bytes(base64.b64decode(data))


def check_drawn(check, browser, where, at_least=10):
    canvases = browser.evaluate(DRAWN)
    check.that(len(canvases) >= at_least, f"{where}: {len(canvases)} canvases")
    for canvas in canvases:
        check.that(canvas["label"] and canvas["colours"] >= 3 and canvas["drawn"] >= 300 and canvas["width"] > 100,
                   f"{where}: a picture is blank: {canvas}")


def check_colours(check, browser, scheme):
    names = TEXT_COLOURS + GRAPHIC_COLOURS + ("card", "page", "state-free", "tip", "tip-ink")
    colour = browser.evaluate(VARIABLES % list(names))
    for name in TEXT_COLOURS:
        for ground in ("card", "page"):
            ratio = contrast(colour[name], colour[ground])
            check.that(ratio >= 4.5, f"{scheme}: text {name} on {ground}: contrast {ratio:.2f}, wanted 4.5")
    check.that(contrast(colour["tip"], colour["tip-ink"]) >= 4.5, f"{scheme}: tooltips")
    for name in GRAPHIC_COLOURS:
        ratio = contrast(colour[name], colour["card"])
        check.that(ratio >= 3, f"{scheme}: {name} on its card: contrast {ratio:.2f}, wanted 3")
    for group in NEIGHBOURS:
        for a, b in itertools.combinations(group, 2):
            for eyes in COLOUR_BLIND:
                apart = difference(colour[a], colour[b], eyes)
                check.that(apart >= 19, f"{scheme}: {a} and {b} with {eyes}: {apart:.1f} apart, wanted 19")


def press(browser, key):
    code = {"Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40, "End": 35, " ": 32, "Enter": 13}[key]
    text = {" ": " ", "Enter": "\r"}.get(key)
    browser.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", key=key, windowsVirtualKeyCode=code,
                 **({"text": text} if text else {}))
    browser.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)


def check_keyboard(check, browser, where):
    """Tab goes through everything, in the order of the page, and shows where it is; each thing has a name."""
    count = browser.evaluate(FOCUSABLE)
    check.that(count > 30, f"{where}: {count} things to focus")
    reached = []
    for _ in range(count):
        press(browser, "Tab")
        focus = browser.evaluate(FOCUSED)
        reached.append(focus["probe"])
        check.that(focus["outline"], f"{where}: no outline on {focus['label']}")
        check.that(bool(focus["name"]), f"{where}: no name on {focus['label']}")
    check.that(reached == [str(i) for i in range(count)], f"{where}: Tab reached {len(set(reached))} of {count}, in order or not")


def check_cursors(check, browser, where):
    """Arrow keys on each picture with a readout say something, and say something else after the next one."""
    count = browser.evaluate("document.querySelectorAll('canvas[aria-describedby]').length")
    for index in range(count):
        node = f"document.querySelectorAll('canvas[aria-describedby]')[{index}]"
        read = f"document.getElementById({node}.getAttribute('aria-describedby')).textContent"
        said = [browser.evaluate(f"({node}.focus(), {read})")]
        for key in ("ArrowRight", "ArrowRight", "End"):
            press(browser, key)
            said.append(browser.evaluate(read))
        check.that(len(set(said)) >= 3, f"{where}: the readout of picture {index} stays {said}")


def check_controls(check, browser, where):
    """A legend button hides its series, a table opens filled, a CSV has a row more than the table."""
    state = "document.querySelector('.legend button').getAttribute('aria-pressed')"
    pixels = "document.querySelector('.frame canvas').toDataURL()"
    before = browser.evaluate(pixels)
    browser.evaluate("document.querySelector('.legend button').focus()")
    press(browser, " ")
    check.that(browser.evaluate(state) == "false" and browser.evaluate(pixels) != before, f"{where}: a legend button hides nothing")
    press(browser, " ")
    check.that(browser.evaluate(state) == "true" and browser.evaluate(pixels) == before, f"{where}: a legend button shows nothing")
    rows = browser.evaluate("""Promise.all([...document.querySelectorAll('details.data')].map((details) => new Promise((done) => {
      details.addEventListener('toggle', () => done(details.querySelectorAll('tbody tr').length));
      details.open = true;
    })))""")
    check.that(len(rows) >= 8 and min(rows) >= 2, f"{where}: tables have {rows} rows")
    csv = browser.evaluate("""new Promise((done) => {
      const link = document.querySelector('a.csv'), original = URL.createObjectURL;
      URL.createObjectURL = (blob) => { blob.text().then(done); return original.call(URL, blob); };
      link.addEventListener('click', (event) => event.preventDefault());
      link.click();
      URL.createObjectURL = original;
    })""")
    lines = csv.strip().split("\r\n")
    check.that(len(lines) == rows[0] + 1 and all(line.count(",") == lines[0].count(",") for line in lines), f"{where}: the CSV is {csv[:200]!r}")
    browser.evaluate("document.querySelectorAll('select').forEach((select) => { select.selectedIndex = select.options.length - 1; select.dispatchEvent(new Event('change')); })")
    check_drawn(check, browser, f"{where}, other choices")


def check_look(check, browser, page, out, at_least):
    """Every picture drawn and nothing wider than the window, at both widths and in both schemes."""
    for width, scheme in itertools.product(WIDTHS, SCHEMES):
        where = f"{page.name}, {width} px, {scheme}"
        open_page(browser, page.as_uri(), width, scheme)
        check_drawn(check, browser, where, at_least)
        overflow = browser.evaluate(OVERFLOW)
        check.that(not overflow, f"{where}: wider than the window: {overflow}")
        screenshot(browser, out / f"{page.stem}-{width}-{scheme}.png")


# What commands draw: the command, pictures at least, titles that must be among them.
OVERLOAD = ("--requests", "300", "--blocks", "300")
COMMAND_PAGES = {
    "exercise": (("sim", "exercise"), 14, ("Paged memory beside arrays", "KV memory over time", "Requests one by one", "Block map",
                                     "Internal fragmentation", "Tokens of a step")),
    "run": (("sim", "run", "--rate", "3", "--system", "quire,vattention,orca-max", "--prefix-cache", "on", "--shared-prefix", "64", *OVERLOAD),
            20, ("Systems side by side", "First token", "Block map", "Requests one by one")),
    "rates": (("sim", "run", "--rates", "0.5,1,1.5,2,3", "--system", "quire,orca-max", *OVERLOAD), 3,
              ("Latency against rate: first token, p95",)),
    "paper": (("sim", "paper", "sharing", "--reduced"), 1, ()),
    "plan": (("plan", "MODEL", "--memory", "512MiB", "--roofline", "40,1"), 5,
             ("Memory by part", "Latency against rate: ttft_p95", "What relief of each resource gains", "What-ifs")),
}


def check_command_pages(check, browser, binary, model, out):
    for name, (command, at_least, titles) in COMMAND_PAGES.items():
        page = out / f"{command[0]}-{name}.html"
        words = [model if word == "MODEL" else word for word in command]
        subprocess.run([binary, *words, "--html", page], check=True, stdout=subprocess.DEVNULL)
        check.that(page.stat().st_size < 3 << 20, f"{name}: {page.stat().st_size} bytes, wanted less than 3 MiB")
        check_look(check, browser, page, out, at_least)
        drawn = browser.evaluate("[...document.querySelectorAll('h3')].map((node) => node.textContent)")
        check.that(set(titles) <= set(drawn), f"{name}: pictures are {drawn}, wanted {titles}")
        sources = browser.evaluate("[...document.querySelectorAll('figure')].map((node) => node.querySelector('.source').textContent + !!node.querySelector('a.csv'))")
        check.that(all("seed 42" in one and f"quire {command[0]}" in one and one.endswith("true") for one in sources),
                   f"{name}: a picture lacks seed, command or CSV: {sources}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True, help="the program sample_page")
    parser.add_argument("--binary", required=True, help="the program quire")
    parser.add_argument("--model", required=True, help="a model file to plan for")
    parser.add_argument("--out", required=True, help="folder for the page and its pictures")
    parser.add_argument("--browser", default=shutil.which("chromium") or "chromium")
    args = parser.parse_args()
    out = Path(args.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    page, large = out / "sample.html", out / "large.html"
    subprocess.run([args.tool, page, "--events", out / "sample.jsonl"], check=True)
    subprocess.run([args.tool, large, "--requests", "10000", "--blocks", "1000"], check=True)

    check = Check()
    check.that(large.stat().st_size < 3 << 20, f"10,000 requests on 1,000 blocks: {large.stat().st_size} bytes, wanted less than 3 MiB")
    with Browser(args.browser) as browser:
        check_look(check, browser, page, out, 10)
        for scheme in SCHEMES:
            open_page(browser, page.as_uri(), WIDTHS[1], scheme)
            check_colours(check, browser, scheme)
        for width in WIDTHS_BETWEEN:
            open_page(browser, page.as_uri(), width, "light")
            overflow = browser.evaluate(OVERFLOW)
            check.that(not overflow, f"{width} px: wider than the window: {overflow}")
        open_page(browser, page.as_uri(), WIDTHS[1], "dark")
        where = "dark"
        check_keyboard(check, browser, where)
        check_controls(check, browser, where)
        check_cursors(check, browser, where)
        # The reader's setting may change while the page is open.
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
        check_drawn(check, browser, "after a change to light")
        open_page(browser, large.as_uri(), WIDTHS[1], "light")
        check_drawn(check, browser, "10,000 requests")
        screenshot(browser, out / "large-1600-light.png")
        check_command_pages(check, browser, args.binary, args.model, out)
        check.that(not browser.problems, f"the page complains or asks for something: {browser.problems}")
    print(f"{check.passed} passed, {len(check.failed)} failed")
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
