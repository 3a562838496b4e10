#!/usr/bin/env python3
"""Quire and other engines side by side: the same file, threads and shapes, in alternating processes of one run.

  peers.py --quire BINARY --model FILE [--peer llama.cpp|openvino|vllm]... [--threads N] [--rounds 3] [--batch 1,8,32]
           [--steps 32] [--json FILE]

Each round runs all, every other round backwards; a ratio is taken within a round, and the median over the rounds is printed.
The machine may be shared: read the ratios, not the figures. Run it by `./dev bench peers`.
"""
import argparse
import sys
from pathlib import Path

import programs
import report
from child import run_json

CONTEXT = 512


def targets(*figures):
    return dict(zip(["prefill 512", *(f"decode batch {batch} context 512" for batch in (1, 8, 32))], figures))


# At least so many times as fast, by model file, CPU tier and peer; prefill 512, then decode of batch 1, 8 and 32.
TARGETS = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": {
        "avx512vnni": {"llama.cpp": targets(7.0, 4.5, 6.5, 5.5)},
        "avx2": {"llama.cpp": targets(3.0, 2.6, 4.0, 3.5), "openvino": targets(1.4, 5.0, 4.0, 3.0)},
    },
    "SmolLM2-135M-Instruct.Q8_0.gguf": {"avx512vnni": {"llama.cpp": targets(3.7, 3.3, 3.5, 3.5)}},
    "qwen2.5-coder-0.5b-instruct.Q4_K_M.gguf": {"avx2": {"llama.cpp": targets(2.0, 1.3, 2.0, 2.0)}},
    "gemma-3-270m.Q4_K_M.gguf": {"avx2": {"llama.cpp": targets(1.7, 1.15, 2.0, 2.0)}},
}


def target_of(model, tier, peer, metric):
    """That of the tier, or else of AVX2: a better one should reach it too."""
    tiers = TARGETS.get(Path(model).name, {})
    return tiers.get(tier, tiers.get("avx2", {})).get(peer, {}).get(metric)


def by_metric(rows):
    return {row["metric"]: row["value"] for row in rows}


def run_quire(args):
    common = [args.model, "--threads", str(args.threads), "--json", "-"]
    prefill = run_json([args.quire, "bench", "prefill", *common, "--tokens", str(CONTEXT), "--repeat", "3"])
    step = run_json([args.quire, "bench", "step", *common, "--context", str(CONTEXT), "--batch", args.batch,
                     "--steps", str(args.steps)])
    return {**step, "rows": prefill["rows"] + step["rows"]}


def run_peer(peer, args):
    return run_json([*programs.bench_command(peer, args), "--context", str(CONTEXT), "--batch", args.batch,
                     "--steps", str(args.steps)], programs.engine_environment(peer, args))


def rounds(args):
    """(Quire's results, {peer: its results}), one for each round."""
    ours, theirs = [], {peer: [] for peer in programs.chosen(args)}
    for number in range(args.rounds):
        order = [None, *theirs]
        for peer in order if number % 2 == 0 else reversed(order):
            print(f"round {number + 1} of {args.rounds}: {peer or 'quire'} ...", file=sys.stderr)
            if peer is None:
                ours.append(run_quire(args))
                continue
            result = programs.attempt(peer, args.peer, lambda: run_peer(peer, args))
            if result is None:
                del theirs[peer]
            else:
                theirs[peer].append(result)
    return ours, theirs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    programs.add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", default="1,8,32")
    parser.add_argument("--steps", type=int, default=32)
    args = parser.parse_args()

    ours, theirs = rounds(args)
    machine = ours[0]["machine"]
    tier = machine.rsplit(", ", 1)[1]
    values = [by_metric(result["rows"]) for result in ours]
    rows = []
    for metric in values[0]:
        for peer, results in theirs.items():
            name = f"{results[0]['name']} {results[0]['version']}"
            rows.append(report.row(metric, "tokens/s", [one[metric] for one in values], name,
                                   [by_metric(one["rows"])[metric] for one in results],
                                   target_of(args.model, tier, peer, metric)))
    report.finish({"name": "peers", "machine": machine, "subject": Path(args.model).name, "rows": rows}, args.json)


if __name__ == "__main__":
    main()
