#!/usr/bin/env python3
"""Quire and llama.cpp side by side: the same file, threads and shapes, in alternating processes of one run.

  peers.py --quire BINARY --model FILE [--threads N] [--rounds 3] [--json FILE]

Each round runs both, in turned order; a ratio is taken within a round, and the median over the rounds is printed. The
machine may be shared: read the ratios, not the figures. Run it by `./dev bench peers`.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

TARGET = 1.0  # at least as fast as llama.cpp
METRICS = ["prefill 512", "decode batch 1 context 512", "decode batch 8 context 512", "decode batch 32 context 512"]


def run_json(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"peers: {command[0]} {command[1]} ended with exit code {done.returncode}")
    return json.loads(done.stdout)


def run_quire(args):
    common = [args.model, "--threads", str(args.threads), "--json"]
    prefill = run_json([args.quire, "bench", "prefill", *common, "--tokens", "512", "--repeat", "3"])
    step = run_json([args.quire, "bench", "step", *common, "--context", "512", "--batch", "1,8,32", "--steps", "32"])
    return {"info": step, "rows": {row["metric"]: row["value"] for row in prefill["rows"] + step["rows"]}}


def run_llama_cpp(args):
    script = str(Path(__file__).with_name("llama_cpp_bench.py"))
    result = run_json([sys.executable, script, "--model", args.model, "--threads", str(args.threads)])
    return {"info": result, "rows": {row["metric"]: row["value"] for row in result["rows"]}}


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown CPU"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="also write the rows to this file")
    args = parser.parse_args()

    ours, theirs = [], []
    for number in range(args.rounds):
        order = [(run_quire, ours), (run_llama_cpp, theirs)]
        for run, results in order if number % 2 == 0 else reversed(order):
            print(f"round {number + 1} of {args.rounds}: {run.__name__.removeprefix('run_')} ...", file=sys.stderr)
            results.append(run(args))

    rows = []
    for metric in METRICS:
        ratio = statistics.median(a["rows"][metric] / b["rows"][metric] for a, b in zip(ours, theirs))
        rows.append({
            "metric": metric,
            "value": round(statistics.median(a["rows"][metric] for a in ours), 1),
            "unit": "tokens/s",
            "peer": round(statistics.median(b["rows"][metric] for b in theirs), 1),
            "ratio": round(ratio, 2),
            "target": TARGET,
            "holds": ratio >= TARGET,
        })
    info = ours[0]["info"]
    machine = f"{cpu_name()}, {args.threads} threads, {info['cpu_tier']}"
    print(f"\n{Path(args.model).name} on {machine}; llama-cpp-python {theirs[0]['info']['version']}; median of {args.rounds} rounds\n")
    print(f"{'tokens/s':30}{'Quire':>10}{'llama.cpp':>12}{'ratio':>9}{'target':>9}")
    for row in rows:
        print(f"{row['metric']:30}{row['value']:10.1f}{row['peer']:12.1f}{row['ratio']:8.2f}x{row['target']:8.1f}x"
              f"  {'holds' if row['holds'] else 'MISSED'}")
    if args.json:
        Path(args.json).write_text(json.dumps({"name": "peers", "machine": machine, "model": Path(args.model).name,
                                               "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
