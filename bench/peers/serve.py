#!/usr/bin/env python3
"""Quire's server under a load, and the same requests given to other engines.

  serve.py --quire BINARY --model FILE [--peer llama.cpp|openvino|vllm]... [--load mixed|shared-prefix]... [--threads N]
           [--requests 64] [--clients 32] [--rounds 1] [--json FILE]

A closed loop of `quire bench serve` over HTTP: on Quire, and on llama-server with a slot for each client. OpenVINO GenAI and
vLLM get the same requests in their own process, prefix cache on, without the cost of HTTP. Loads:

  mixed           prompt and answer lengths of ShareGPT's conversations, up to 2,048 tokens together
  shared-prefix   1,000 tokens that all requests share, then 16 to 128 of their own; answers of 32 to 128

Each side warms up with two short requests that share nothing with the load. Run it by `./dev bench serve`.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import programs
import report
from child import Failed, run_json

LOADS = {
    "mixed": ["--lengths", "sharegpt", "--max-total", str(programs.SLOT_TOKENS)],
    "shared-prefix": ["--shared-prefix", "1000", "--prompt", "uniform:16,128", "--output", "uniform:32,128"],
}
# At least so many times the peer's tokens a second.
TARGETS = {
    "mixed": {"llama.cpp": 5.0, "openvino": 2.0, "vllm": 2.0},
    "shared-prefix": {"llama.cpp": 15.0, "openvino": 6.0, "vllm": 2.0},
}
# What is printed: the name, the metric of `quire bench serve`, its unit, and the bound of the ratio, if the same holds for all.
FIGURES = [
    ("tokens/s", "output tokens/s", "tokens/s", None),
    ("first token p50", "ttft p50", "ms", None),
    ("first token p99", "ttft p99", "ms", None),
    ("inter-token p99", "gap p99", "ms", 1.0),
    ("inter-token max", "gap max", "ms", None),
]


def load_flags(load, args):
    return [*LOADS[load], "--clients", str(args.clients), "--requests", str(args.requests)]


def run_over_http(server, load, args, folder):
    result = Path(folder) / "run.json"
    with server:
        bench = [args.quire, "bench", "serve", server.url]
        for flags in (["--seed", "2", "--requests", "2", "--prompt", "16", "--output", "4"],
                      [*load_flags(load, args), "--json", str(result), "--timeout", "60min"]):
            done = subprocess.run([*bench, *flags], stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode != 0:
                raise Failed(f"quire bench serve: {done.stderr.strip() or done.stdout.strip()}")
    return json.loads(result.read_text())


def run_in_process(peer, load, args, folder):
    requests = Path(folder) / "requests.jsonl"
    subprocess.run([args.quire, "bench", "serve", "--requests-to", str(requests), *load_flags(load, args)], check=True,
                   stdin=subprocess.DEVNULL)
    return run_json([*programs.bench_command(peer, args), "--requests", str(requests), "--clients", str(args.clients),
                     "--cache-gib", str(programs.KV_GIB)], programs.engine_environment(peer, args))


def by_metric(result):
    return {row["metric"]: row["value"] for row in result["rows"]}


def run_side(side, load, args, folder):
    """Fails if requests were lost: the figures would compare something else."""
    print(f"{load}: {side} ...", file=sys.stderr)
    if side == "quire":
        result, name = run_over_http(programs.quire_server(args), load, args, folder), "quire"
    elif side == "llama.cpp":
        result, name = run_over_http(programs.llama_server(args), load, args, folder), programs.llama_server_name()
    else:
        result = run_in_process(side, load, args, folder)
        name = f"{result['name']} {result['version']}, in process"
    counts = by_metric(result)
    if counts["failed"] or counts["short"]:
        raise Failed(f"{name}: {counts['failed']:g} requests failed, {counts['short']:g} were cut short: {result.get('failures')}")
    return {**result, "name": name}


def load_rows(load, peer, ours, theirs):
    rows = []
    for name, metric, unit, most in FIGURES:
        target, bound = (most, "<=") if most is not None else (None, None)
        if metric == "output tokens/s":
            target, bound = TARGETS[load][peer], ">="
        rows.append(report.row(f"{load} {name}", unit, [by_metric(one)[metric] for one in ours], theirs[0]["name"],
                               [by_metric(one)[metric] for one in theirs], target, bound))
    return rows


def run_load(load, args, folder):
    sides = {side: [] for side in ["quire", *programs.chosen(args)]}
    for number in range(args.rounds):
        for side in list(sides) if number % 2 == 0 else reversed(list(sides)):
            result = programs.attempt(side, args.peer or side == "quire", lambda: run_side(side, load, args, folder))
            if result is None:
                del sides[side]
            else:
                sides[side].append(result)
    ours = sides.pop("quire")
    return [row for peer, theirs in sides.items() for row in load_rows(load, peer, ours, theirs)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    programs.add_arguments(parser)
    parser.add_argument("--load", action="append", choices=list(LOADS), help="may be repeated; default: both")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--clients", type=int, default=programs.SLOTS)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    if args.clients > programs.SLOTS:
        parser.error(f"--clients: found {args.clients}, wanted at most {programs.SLOTS}, the slots of llama-server")

    machine = run_json([args.quire, "bench", "prefill", args.model, "--threads", str(args.threads), "--tokens", "16", "--repeat", "1",
                        "--json", "-"])["machine"]
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for load in args.load or LOADS for row in run_load(load, args, folder)]
    subject = f"{Path(args.model).name}, {args.requests} requests, {args.clients} clients"
    report.finish({"name": "serve", "machine": machine, "subject": subject, "rows": rows}, args.json)


if __name__ == "__main__":
    main()
