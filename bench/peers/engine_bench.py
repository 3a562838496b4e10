"""Times an engine in this process: prefill and decode steps of a batch, or a closed loop of requests.

  engine_bench.py --engine openvino|vllm --model FILE --threads N [--context 512] [--batch 1,8,32] [--steps 32] [--repeat 3]
  engine_bench.py --engine openvino|vllm --model FILE --threads N --requests FILE --clients 32

The prompts of a batch are all different. With --requests, which `quire bench serve --requests-to` wrote, the engine's
prefix cache is on. Prints one JSON object.
"""
import argparse
import importlib
import json
import os
import random
import statistics
import time

import closed_loop

FIRST_TOKEN, LAST_TOKEN = 1000, 15999  # as `quire bench serve` draws them


def prompt(generator, tokens):
    return [generator.randint(FIRST_TOKEN, LAST_TOKEN) for _ in range(tokens)]


def run_until_ended(engine, running):
    while running > 0:
        running -= sum(has_ended for _, _, has_ended in engine.step())


def prefill(engine, generator, tokens, repeat):
    """Milliseconds to the first token of prompts that are alone."""
    times = []
    for _ in range(repeat + 1):
        request = prompt(generator, tokens)
        start = time.perf_counter()
        engine.submit(0, request, 1)
        run_until_ended(engine, 1)
        times.append((time.perf_counter() - start) * 1e3)
    return times[1:]


def decode(engine, generator, batch, context, steps):
    """Milliseconds a step, and how many, while `batch` requests decode one token each.

    A mean over the whole stretch: an engine in a process of its own may run ahead, so that single steps say nothing.
    """
    # Those that come first decode while the others' prompts are computed: room for that.
    for number in range(batch):
        engine.submit(number, prompt(generator, context), 2 * batch + steps + 4)
    ends, running, started = [], batch, set()
    while running > 0:
        events = engine.step()
        if len(started) == batch == running and len(events) == batch and len(ends) < steps + 2:
            ends.append(time.perf_counter())
        started.update(number for number, _, _ in events)
        running -= sum(has_ended for _, _, has_ended in events)
    timed = ends[1:]  # the first steps of a batch size may compile or allocate
    return (timed[-1] - timed[0]) * 1e3 / (len(timed) - 1), len(timed) - 1


def row(metric, tokens, ms, samples):
    return {"metric": metric, "value": tokens * 1e3 / ms, "unit": "tokens/s", "ms": ms, "samples": samples}


def steps_report(engine, args):
    generator = random.Random(1)
    times = prefill(engine, generator, args.context, args.repeat)
    rows = [row(f"prefill {args.context}", args.context, statistics.median(times), len(times))]
    for batch in map(int, args.batch.split(",")):
        rows.append(row(f"decode batch {batch} context {args.context}", batch,
                        *decode(engine, generator, batch, args.context, args.steps)))
    return rows


def load_report(engine, args):
    with open(args.requests, encoding="utf-8") as file:
        requests = closed_loop.read_requests(file.read())
    generator = random.Random(2)
    closed_loop.run(engine, [closed_loop.Request(prompt(generator, 16), 4) for _ in range(2)], 2)  # warms up
    return closed_loop.figures(*closed_loop.run(engine, requests, args.clients))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", required=True, choices=["openvino", "vllm"])
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--batch", default="1,8,32")
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--requests", help="JSON lines of `quire bench serve --requests-to`")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--step-tokens", type=int, default=512, help="tokens of a step at most")
    parser.add_argument("--cache-gib", type=int, default=2, help="memory for KV")
    args = parser.parse_args()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the engines print does not mix with the JSON
    args.prefix_cache = args.requests is not None
    engine = importlib.import_module(f"{args.engine}_engine").Engine(args)
    rows = load_report(engine, args) if args.requests else steps_report(engine, args)
    print(json.dumps({"name": engine.name, "version": engine.version, "rows": rows}), file=out, flush=True)


if __name__ == "__main__":
    main()
