#!/usr/bin/env python3
"""Kills `quire serve` at random moments while it writes KV block files, starts it again on the same directory, and
verifies every answer, before and after, against a server without files.

    kill_check.py --binary build/quire --model MODEL.gguf [--rounds 20] [--seed 1]

Between the rounds some files are cut or changed, as a machine that lost power might have left them. Exit code 1 if an
answer differs, a request fails, or the cache did not survive.
"""

import argparse
import concurrent.futures
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "conformance"))
from server_process import Server  # noqa: E402

WORDS = ("page table block memory cache tree river stone cloud engine paper letter window garden number signal "
         "copper winter market bridge").split()


def make_prompts(rng):
    """Token ids are the server's business; these are texts with common beginnings of several lengths."""
    stems = [" ".join(rng.choices(WORDS, k=120)) for _ in range(3)]
    return [f"{stems[i % 3]} {' '.join(rng.choices(WORDS, k=rng.randint(1, 80)))}" for i in range(12)]


def body_of(prompt):
    return {"prompt": prompt, "max_tokens": 24, "temperature": 0.8, "seed": 7, "logprobs": 2, "ignore_eos": True}


def ask(server, prompt):
    """(what must not differ, cached tokens), or None if the server went away."""
    try:
        status, _, answer = server.post("/v1/completions", body_of(prompt))
    except (OSError, ValueError):  # the connection, or half an answer
        return None
    if status != 200:
        raise AssertionError(f"status {status}: {answer}")
    choice = answer["choices"][0]
    usage = answer["usage"]
    return (choice["text"], choice["finish_reason"], choice["logprobs"]), usage["prompt_tokens_details"]["cached_tokens"]


class Run:
    def __init__(self, binary, model, directory, rng):
        self.binary, self.model, self.directory, self.rng = binary, model, directory, rng
        self.prompts = make_prompts(rng)
        self.answered = self.found = self.damaged = 0
        self.lock = threading.Lock()
        self.flags = ["--ctx", "1024", "--kv-memory", "24MiB", "--max-batch-rows", "4"]
        with Server(binary, model, *self.flags) as server:
            self.expected = [ask(server, prompt)[0] for prompt in self.prompts]
            assert server.stop() == 0

    def start(self):
        return Server(self.binary, self.model, *self.flags, "--kv-ram-bytes", "24MiB", "--kv-swap-dir",
                      str(self.directory), "--kv-swap-bytes", "64MiB")

    def verify(self, server, index):
        """The cached tokens; None if the server went away."""
        result = ask(server, self.prompts[index])
        if result is None:
            return None
        assert result[0] == self.expected[index], f"prompt {index}: another answer than without files"
        with self.lock:
            self.answered += 1
            self.found += result[1] > 0
        return result[1]

    def damage_some(self):
        files = sorted(self.directory.glob("*.kv"))
        for path in self.rng.sample(files, min(2, len(files))):
            data = bytearray(path.read_bytes())
            if self.rng.random() < 0.5:
                data = data[:self.rng.randrange(len(data))] if data else data
            elif data:
                data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
            path.write_bytes(data)
            self.damaged += 1

    def round(self):
        with self.start() as server:
            delay = self.rng.uniform(0.02, 1.2)
            order = [self.rng.randrange(len(self.prompts)) for _ in range(40)]
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                futures = [pool.submit(self.verify, server, index) for index in order]
                time.sleep(delay)
                server.process.kill()
                server.process.wait()
                for future in futures:
                    future.result()
        if self.rng.random() < 0.3:
            self.damage_some()

    def last(self):
        """Stopped properly, everything must be found again, and nothing may be left half written."""
        with self.start() as server:
            for index in range(len(self.prompts)):
                self.verify(server, index)
            assert server.stop() == 0
        assert not list(self.directory.glob("*.tmp")), "a half written file is left"
        with self.start() as server:
            for index in range(len(self.prompts)):
                assert self.verify(server, index) > 0, f"prompt {index} is not found after a proper stop"
            metrics = server.metrics()
            reads = {name: int(value) for name, value in metrics.items() if name.startswith("quire_kv_file_reads")}
            assert server.stop() == 0
        return reads


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="quire-kill-") as path:
        run = Run(args.binary, args.model, Path(path) / "kv", random.Random(args.seed))
        for number in range(args.rounds):
            try:
                run.round()
            except AssertionError as error:
                print(f"FAILED in round {number + 1} of seed {args.seed}: {error}")
                return 1
        run.damage_some()
        reads = run.last()
    print(f"{args.rounds} kills in {time.monotonic() - started:.0f} s: {run.answered} answers verified, "
          f"{run.found} began with cached tokens, {run.damaged} files damaged; after the last start {reads}")
    if args.rounds >= 5 and run.found == 0:
        print("FAILED: no answer began with cached tokens")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
