#!/usr/bin/env python3
"""What the scripts of bench/peers compute, without any peer: rows, figures of a closed loop, what is installed.

    peers_check.py

Prints one line per check; exit code 1 if any failed. Needs nothing but Python.
"""
import json
import os
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "peers"))

import closed_loop
import environments
import peers
import programs
import report
import serve

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def fails(error, words, action):
    try:
        action()
    except error as caught:
        assert all(word in str(caught) for word in words), caught
        return
    raise AssertionError(f"no {error.__name__}")


class Clock:
    def __init__(self):
        self.time_s = 0.0

    def __call__(self):
        return self.time_s


class FakeEngine:
    """A step takes a second and gives each request a token; a prompt takes a step of its own before that."""

    def __init__(self, clock):
        self.clock, self.running, self.most = clock, {}, 0

    def submit(self, number, prompt, max_tokens):
        self.running[number] = [len(prompt), max_tokens]
        self.most = max(self.most, len(self.running))

    def step(self):
        self.clock.time_s += 1
        events = []
        for number, state in list(self.running.items()):
            if state[0] > 0:
                state[0] = 0
                continue
            state[1] -= 1
            events.append((number, 1, state[1] == 0))
            if state[1] == 0:
                del self.running[number]
        return events


@check
def a_ratio_is_the_median_over_the_rounds():
    row = report.row("m", "tokens/s", [10, 30, 20], "peer", [10, 10, 10], 2.0)
    assert (row["value"], row["peer"], row["ratio"], row["bound"], row["holds"]) == (20, 10, 2, ">=", True), row
    assert row["spread"] == 0.5, row


@check
def a_target_can_be_a_most():
    assert report.row("m", "ms", [9], "peer", [10], 1.0, "<=")["holds"] is True
    assert report.row("m", "ms", [11], "peer", [10], 1.0, "<=")["holds"] is False
    row = report.row("m", "ms", [11], "peer", [10])
    assert row["target"] is None and row["bound"] is None and row["holds"] is None and row["spread"] is None, row


@check
def a_table_shows_bound_and_verdict():
    rows = [report.row("m", "ms", [11], "peer", [10], 1.0, "<="), report.row("n", "ms", [1], "peer", [2])]
    lines = report.table({"name": "a", "machine": "b", "subject": "c", "rows": rows}).splitlines()
    assert lines[0] == "a on b; c" and lines[3].endswith("<= 1x   MISSED") and lines[4].endswith("0.500x"), lines


@check
def percentiles_are_those_of_numpy():
    values = [4, 1, 3, 2]
    assert [closed_loop.percentile(values, share) for share in (0, 0.5, 0.99, 1)] == [1, 2.5, 3.9699999999999998, 4]
    assert closed_loop.percentile([], 0.5) == 0 and closed_loop.percentile([7], 0.99) == 7


@check
def a_closed_loop_keeps_its_clients_busy_and_counts_as_they_do():
    clock = Clock()
    engine = FakeEngine(clock)
    requests = [closed_loop.Request([5, 6], tokens) for tokens in (1, 3, 2)]
    samples, seconds = closed_loop.run(engine, requests, 2, clock)
    assert engine.most == 2 and not engine.running
    # 0 and 1 begin at 0; 0 ends at 2, so that 2 begins then; 1 ends at 4, 2 at 5.
    assert [(sample.sent, sample.times) for sample in samples] == [(0, [2]), (0, [2, 3, 4]), (2, [4, 5])], samples
    assert seconds == 5
    rows = {row["metric"]: row["value"] for row in closed_loop.figures(samples, seconds)}
    assert rows["output tokens/s"] == 6 / 5 and rows["short"] == 0 and rows["failed"] == 0 and rows["completed"] == 3
    assert rows["ttft p50"] == 2000 and rows["gap p99"] == 1000 and rows["gap max"] == 1000, rows


@check
def more_clients_than_requests_and_none_at_all_end():
    clock = Clock()
    samples, _ = closed_loop.run(FakeEngine(clock), [closed_loop.Request([1], 1)], 8, clock)
    assert len(samples) == 1
    assert closed_loop.run(FakeEngine(clock), [], 8, clock)[0] == []


@check
def an_answer_that_is_cut_short_is_counted():
    sample = closed_loop.Sample(0.0, 4, [1.0], 3)
    rows = {row["metric"]: row["value"] for row in closed_loop.figures([sample], 1.0)}
    assert rows["short"] == 1


@check
def requests_are_read_as_bench_serve_writes_them():
    lines = "".join(json.dumps({"model": "", "prompt": [1, 2], "max_tokens": n}) + "\n" for n in (3, 4))
    assert closed_loop.read_requests(lines) == [closed_loop.Request([1, 2], 3), closed_loop.Request([1, 2], 4)]
    fails(ValueError, ["line 1", "token ids"], lambda: closed_loop.read_requests('{"prompt": "text", "max_tokens": 1}'))


@check
def every_environment_has_pinned_versions():
    for name, (requirements, _) in environments.ENVIRONMENTS.items():
        commands = list(environments.pip_commands(name))
        files = [command[command.index("-r") + 1] for command in commands]
        assert all(Path(file).exists() for file in files) and files[-1].endswith(f"/{requirements}.txt"), files
        for file in files:
            for line in Path(file).read_text().splitlines():
                assert line.startswith("#") or line.count("==") == 1, f"{file}: {line}"
    assert re.fullmatch(r"llama-server [0-9.]+", programs.llama_server_name())


@check
def a_build_with_other_arguments_is_another_environment():
    assert environments.recipe("llama-cpp") != environments.recipe("llama-cpp-avx2")
    assert "--no-cache-dir" in next(environments.pip_commands("llama-cpp-avx2"))
    assert "--no-cache-dir" not in next(environments.pip_commands("llama-cpp"))


@check
def avx2_alone_is_said_to_the_peers_too():
    before = os.environ.pop("QUIRE_CPU", None)
    assert not programs.is_avx2_only() and programs.engine_environment("openvino", None) == {}
    os.environ["QUIRE_CPU"] = "avx2"
    assert programs.is_avx2_only() and programs.engine_environment("openvino", None) == {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    os.environ.pop("QUIRE_CPU")
    if before is not None:
        os.environ["QUIRE_CPU"] = before


@check
def targets_are_those_of_the_tier_or_of_avx2():
    metric = "decode batch 1 context 512"
    assert peers.target_of("a/SmolLM2-135M-Instruct.Q4_1.gguf", "avx512vnni", "llama.cpp", metric) == 4.5
    assert peers.target_of("a/SmolLM2-135M-Instruct.Q4_1.gguf", "avx512", "llama.cpp", metric) == 2.6
    assert peers.target_of("a/gemma-3-270m.Q4_K_M.gguf", "avx512vnni", "llama.cpp", metric) == 1.15
    assert peers.target_of("a/SmolLM2-135M-Instruct.Q4_1.gguf", "avx2", "vllm", metric) is None
    assert peers.target_of("a/other.gguf", "avx2", "llama.cpp", metric) is None


@check
def rows_of_a_load_compare_rate_and_gaps():
    def side(rate, gap, name):
        metrics = {"output tokens/s": rate, "ttft p50": 1, "ttft p99": 2, "gap p99": gap, "gap max": 9}
        return {"name": name, "rows": [{"metric": metric, "value": value} for metric, value in metrics.items()]}
    rows = {row["metric"]: row for row in serve.load_rows("mixed", "openvino", [side(30, 5, "quire")], [side(10, 4, "peer 1")])}
    rate, gap = rows["mixed tokens/s"], rows["mixed inter-token p99"]
    assert rate["ratio"] == 3 and rate["target"] == 2 and rate["holds"] is True and rate["against"] == "peer 1"
    assert gap["ratio"] == 1.25 and gap["bound"] == "<=" and gap["holds"] is False
    assert rows["mixed first token p99"]["target"] is None
    assert set(serve.TARGETS) == set(serve.LOADS) and all(set(one) == set(programs.PEERS) for one in serve.TARGETS.values())


def main():
    failed = 0
    for function in CHECKS:
        try:
            function()
        except Exception as error:  # a check that fails in any way
            failed += 1
            print(f"FAILED  {function.__name__}: {type(error).__name__}: {error}")
            continue
        print(f"ok      {function.__name__}")
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
