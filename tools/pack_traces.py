#!/usr/bin/env python3
"""Makes the files of data/ from the published traces.

  tools/pack_traces.py TRACES DATA    TRACES has mooncake-fast25/{conversation,synthetic}_trace.jsonl.gz and
                                      sharegpt-8k/sharegpt_8k_filtered_stats_llama2_tokenizer.csv.gz
"""
import csv
import gzip
import json
import sys
from pathlib import Path


def write(path, text):
    with open(path, "wb") as file, gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=9, mtime=0) as out:
        out.write(text.encode())


def block_trace(path):
    """Mooncake's JSON lines as a block trace: runs of consecutive names, gaps instead of times."""
    lines, last = ["quire-block-trace 512"], 0
    for line in gzip.open(path, "rt"):
        request = json.loads(line)
        runs = []
        for name in request["hash_ids"]:
            if runs and sum(runs[-1]) == name:
                runs[-1][1] += 1
            else:
                runs.append([name, 1])
        lines.append(" ".join([str(request["timestamp"] - last), str(request["input_length"]), str(request["output_length"])] +
                              [f"{first}+{count}" for first, count in runs]))
        last = request["timestamp"]
    return "\n".join(lines) + "\n"


def first_turns(path):
    """Prompt and answer of each conversation's first turn. A new one begins where the prompt is shorter than all before."""
    lines, total = ["prompt_tokens,output_tokens"], None
    for row in csv.DictReader(gzip.open(path, "rt")):
        prompt, output = int(row["num_prefill_tokens"]), int(row["num_decode_tokens"])
        if total is None or prompt < total:
            lines.append(f"{prompt},{output}")
        total = prompt + output
    return "\n".join(lines) + "\n"


def main():
    traces, data = map(Path, sys.argv[1:])
    for name in ("conversation", "synthetic"):
        write(data / f"mooncake-{name}.blocks.gz", block_trace(traces / f"mooncake-fast25/{name}_trace.jsonl.gz"))
    write(data / "sharegpt-first-turns.csv.gz",
          first_turns(traces / "sharegpt-8k/sharegpt_8k_filtered_stats_llama2_tokenizer.csv.gz"))


if __name__ == "__main__":
    main()
