"""Times llama.cpp (through llama-cpp-python's C API) in this process: prefill, and decode steps of a batch.

  llama_cpp_bench.py --model FILE --threads N [--context 512] [--batch 1,8,32] [--steps 32] [--repeat 3]

Defaults of llama.cpp throughout (flash attention auto, f16 KV, one KV stream for each sequence), greedy sampling. The
context of all sequences is computed once and copied. Prints one JSON object.
"""
import argparse
import ctypes
import json
import statistics
import time

import llama_cpp
import numpy as np


def add(batch, token, position, sequence, logits):
    i = batch.n_tokens
    batch.token[i] = token
    batch.pos[i] = position
    batch.n_seq_id[i] = 1
    batch.seq_id[i][0] = sequence
    batch.logits[i] = logits
    batch.n_tokens += 1


class Peer:
    def __init__(self, path, threads):
        llama_cpp.llama_backend_init()
        quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        self.quiet = quiet  # the library keeps the pointer
        llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.threads = threads
        self.random = np.random.default_rng(1)

    def context(self, sequences, tokens_each):
        params = llama_cpp.llama_context_default_params()
        params.n_seq_max = sequences
        params.n_ctx = sequences * (-(-tokens_each // 256) * 256)  # whole multiples of llama.cpp's padding
        params.n_batch = max(params.n_batch, 512)
        params.n_threads = params.n_threads_batch = self.threads
        context = llama_cpp.llama_init_from_model(self.model, params)
        if not context:
            raise SystemExit("llama.cpp cannot make a context")
        return context

    def prompt(self, tokens):
        return [int(x) for x in self.random.integers(0, self.vocab, tokens)]

    def decode(self, context, batch):
        if code := llama_cpp.llama_decode(context, batch):
            raise SystemExit(f"llama_decode returned {code}")

    def best(self, context, row):
        logits = llama_cpp.llama_get_logits_ith(context, row)
        return int(np.argmax(np.ctypeslib.as_array(logits, shape=(self.vocab,))))

    def compute_prompt(self, context, tokens):
        """Milliseconds to the first token."""
        batch = llama_cpp.llama_batch_init(tokens, 0, 1)
        prompt = self.prompt(tokens)
        start = time.perf_counter()
        batch.n_tokens = 0
        for position, token in enumerate(prompt):
            add(batch, token, position, 0, position == tokens - 1)
        self.decode(context, batch)
        self.best(context, tokens - 1)
        elapsed = time.perf_counter() - start
        llama_cpp.llama_batch_free(batch)
        return elapsed * 1e3

    def prefill(self, tokens, repeat):
        context = self.context(1, tokens)
        times = []
        for i in range(repeat + 1):
            llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
            times.append(self.compute_prompt(context, tokens))
        llama_cpp.llama_free(context)
        return times[1:]

    def steps(self, sequences, tokens, steps):
        context = self.context(sequences, tokens + steps + 1)
        self.compute_prompt(context, tokens)
        memory = llama_cpp.llama_get_memory(context)
        for sequence in range(1, sequences):
            llama_cpp.llama_memory_seq_cp(memory, 0, sequence, -1, -1)
        batch = llama_cpp.llama_batch_init(sequences, 0, 1)
        last = self.prompt(sequences)
        times = []
        for step in range(steps + 1):
            start = time.perf_counter()
            batch.n_tokens = 0
            for sequence in range(sequences):
                add(batch, last[sequence], tokens + step, sequence, True)
            self.decode(context, batch)
            last = [self.best(context, row) for row in range(sequences)]
            times.append((time.perf_counter() - start) * 1e3)
        llama_cpp.llama_batch_free(batch)
        llama_cpp.llama_free(context)
        return times[1:]


def row(metric, tokens, times):
    median = statistics.median(times)
    return {"metric": metric, "value": tokens * 1e3 / median, "unit": "tokens/s", "median_ms": median, "samples": len(times)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--batch", default="1,8,32")
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    peer = Peer(args.model, args.threads)
    rows = [row(f"prefill {args.context}", args.context, peer.prefill(args.context, args.repeat))]
    for batch in map(int, args.batch.split(",")):
        rows.append(row(f"decode batch {batch} context {args.context}", batch, peer.steps(batch, args.context, args.steps)))
    print(json.dumps({"name": "llama-cpp-python", "version": llama_cpp.__version__, "rows": rows}))


if __name__ == "__main__":
    main()
