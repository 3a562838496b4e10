"""The report that every benchmark prints (src/quire/report/report.h), for scripts: rows to a table and to JSON."""
import json
import statistics
from pathlib import Path

COLUMNS = ["metric", "value", "unit", "peer", "ratio", "spread", "target", ""]
NUMBERS = {"value", "ratio", "spread"}


def spread(values):
    """The interquartile range over the median; None for fewer than three values."""
    if len(values) < 3:
        return None
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / abs(middle) if middle else None


def row(metric, unit, values, against, peers, target=None, bound=">="):
    """values[i] and peers[i] come from the same round; the target is for their ratio."""
    ratios = [value / peer for value, peer in zip(values, peers, strict=True)]
    ratio = statistics.median(ratios)
    return {"metric": metric, "value": statistics.median(values), "unit": unit, "against": against,
            "peer": statistics.median(peers), "ratio": ratio, "spread": spread(ratios),
            "target": target, "bound": None if target is None else bound,
            "holds": None if target is None else ratio >= target if bound == ">=" else ratio <= target}


def cells(row):
    return [row["metric"], f"{row['value']:.1f}", row["unit"], f"{row['peer']:.1f} {row['against']}", f"{row['ratio']:.3f}x",
            "" if row["spread"] is None else f"{row['spread'] * 100:.1f} %",
            "" if row["target"] is None else f"{row['bound']} {row['target']:g}x",
            {None: "", True: "holds", False: "MISSED"}[row["holds"]]]


def table(report):
    lines = [COLUMNS] + [cells(row) for row in report["rows"]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    text = [f"{report['name']} on {report['machine']}; {report['subject']}", ""]
    for line in lines:
        text.append("  ".join(cell.rjust(width) if name in NUMBERS else cell.ljust(width)
                              for cell, width, name in zip(line, widths, COLUMNS)).rstrip())
    return "\n".join(text)


def finish(report, path):
    """Prints the table; writes JSON to `path`, if there is one."""
    print(table(report))
    if path:
        Path(path).write_text(json.dumps(report, indent=2) + "\n")
