#!/usr/bin/env python3
"""Quire and llama.cpp side by side: the same file, threads and shapes, in alternating processes of one run.

  peers.py --quire BINARY --model FILE [--threads N] [--rounds 3] [--json FILE]

Each round runs both, in turned order; a ratio is taken within a round, and the median over the rounds is printed. The
machine may be shared: read the ratios, not the figures. Run it by `./dev bench peers`.
"""
import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import report

# At least so many times as fast as llama.cpp with the default model (SmolLM2 Q4_1), by CPU tier.
TARGETS = {
    "avx512vnni": {"prefill 512": 7.0, "decode batch 1 context 512": 4.5, "decode batch 8 context 512": 6.5,
                   "decode batch 32 context 512": 5.5},
    "avx2": {"prefill 512": 3.0, "decode batch 1 context 512": 2.6, "decode batch 8 context 512": 4.0,
             "decode batch 32 context 512": 3.5},
}
METRICS = list(TARGETS["avx2"])


def run_json(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"peers: {command[0]} {command[1]} ended with exit code {done.returncode}")
    return json.loads(done.stdout)


def run_quire(args):
    common = [args.model, "--threads", str(args.threads), "--json", "-"]
    prefill = run_json([args.quire, "bench", "prefill", *common, "--tokens", "512", "--repeat", "3"])
    step = run_json([args.quire, "bench", "step", *common, "--context", "512", "--batch", "1,8,32", "--steps", "32"])
    return {"info": step, "rows": {row["metric"]: row["value"] for row in prefill["rows"] + step["rows"]}}


def run_llama_cpp(args):
    script = str(Path(__file__).with_name("llama_cpp_bench.py"))
    result = run_json([sys.executable, script, "--model", args.model, "--threads", str(args.threads)])
    return {"info": result, "rows": {row["metric"]: row["value"] for row in result["rows"]}}


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

    machine = ours[0]["info"]["machine"]
    tier = machine.rsplit(", ", 1)[1]
    is_default_model = Path(args.model).name.startswith("SmolLM2-135M") and "Q4_1" in args.model
    targets = TARGETS.get(tier, TARGETS["avx2"]) if is_default_model else {}
    theirs_name = f"llama-cpp-python {theirs[0]['info']['version']}"
    rows = [report.row(metric, "tokens/s", [a["rows"][metric] for a in ours], theirs_name,
                       [b["rows"][metric] for b in theirs], targets.get(metric)) for metric in METRICS]
    report.finish({"name": "peers", "machine": machine, "subject": Path(args.model).name, "rows": rows}, args.json)


if __name__ == "__main__":
    main()
