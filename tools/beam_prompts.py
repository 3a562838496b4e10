#!/usr/bin/env python3
"""Prompts for `quire sim record-beams`, with the lengths of the PagedAttention paper's two workloads.

  tools/beam_prompts.py PROMPTS OUT.jsonl    PROMPTS has seed_tasks.jsonl (github.com/yizhongw/self-instruct) and
                                             question.jsonl (FastChat's MT-bench), both Apache-2.0

alpaca: instructions of self-instruct, the seeds from which Alpaca was made, as they are. sharegpt: texts of both, cut to
lengths drawn as in src/quire/sim/paper.cpp (sharegpt_recipe; four characters a token). Lengths of answers are drawn
likewise; the longest answers are cut at 600 tokens, for time.
"""
import json
import math
import random
import sys
from pathlib import Path

NUM_ALPACA, NUM_SHAREGPT, LONGEST = 64, 16, 600


def drawn(draw, low, high):
    while True:
        value = math.ceil(draw())
        if low <= value <= high:
            return value


def main():
    folder, out = map(Path, sys.argv[1:])
    tasks = [json.loads(line) for line in open(folder / "seed_tasks.jsonl")]
    questions = [json.loads(line) for line in open(folder / "question.jsonl")]
    rng = random.Random(42)
    lines = []
    for task in rng.sample(tasks, NUM_ALPACA):
        length = drawn(lambda: rng.lognormvariate(3.55, 1.05), 2, 700)
        lines.append({"set": "alpaca", "prompt": task["instruction"], "max_tokens": min(length, LONGEST)})
    texts = [turn for question in questions for turn in question["turns"]]
    texts += [task["instruction"] + "\n\n" + task["instances"][0]["input"] for task in tasks]
    for _ in range(NUM_SHAREGPT):
        prompt = drawn(lambda: rng.lognormvariate(4.6, 1.25), 4, 1024)
        length = drawn(lambda: rng.expovariate(1 / 340), 4, 2044)
        text = ""
        while len(text) < 4 * prompt:
            text += rng.choice(texts) + "\n\n"
        lines.append({"set": "sharegpt", "prompt": text[:4 * prompt], "max_tokens": min(length, LONGEST)})
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
