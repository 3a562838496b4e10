#!/usr/bin/env python3
"""quire sim as a user meets it: tables, JSON, errors of one line that name file, row and column.

    sim_check.py --binary build/quire

Needs no model and nothing but Python. Prints one line per check; exit code 1 if any failed.
"""
import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


class Sim:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, Path(folder)

    def run(self, *args):
        done = subprocess.run([self.binary, "sim", *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=300)
        return done.returncode, done.stdout, done.stderr

    def json(self, *args):
        path = self.folder / "out.json"
        code, out, err = self.run(*args, "--json", path)
        assert code == 0, f"exit code {code}: {err}"
        return json.loads(path.read_text()), out

    def refused(self, words, *args, code_wanted=1):
        code, out, err = self.run(*args)
        assert code == code_wanted, f"found exit code {code}, wanted {code_wanted}: {err}"
        assert err.startswith("quire: ") and err.count("\n") == 1, f"wanted one line: {err!r}"
        for word in words:
            assert word in err, f"'{word}' is not in {err!r}"

    def file(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


@check
def the_exercise_needs_nothing_and_has_six_settings(sim):
    report, out = sim.json("exercise")
    settings = {(one["max_len"], one["mode"]): one for one in report["settings"]}
    assert set(settings) == {(n, mode) for n in (512, 1024, 2048) for mode in ("static", "growing")}
    for (max_len, mode), one in settings.items():
        for side in ("paged", "contiguous"):
            for key in ("blocks_occupied", "utilisation", "internal_fragmentation", "external_fragmentation",
                        "requests_at_once_mean", "requests_at_once_max", "preemptions", "bytes_written"):
                assert isinstance(one[side][key], (int, float)), (side, key)
        assert 0 < one["paged"]["internal_fragmentation"] <= 0.05
        assert one["contiguous"]["requests_at_once_max"] == 8192 // max_len
        assert one["concurrency_ratio"] < one["concurrency_bound"]
        assert (one["paged"]["bytes_written"] > 0) == (mode == "growing")
    assert 1.6 < settings[512, "static"]["concurrency_bound"] < 2.0
    assert 2.7 < settings[512, "growing"]["concurrency_bound"] < 3.1
    for words in ("#####", "7 %", "elements of 4 bytes", "read back from the file"):
        assert words in out, words
    assert {one["block_size"] for one in report["sweep"]} == {8, 16, 32, 64, 128}


@check
def a_seed_gives_the_same_exercise_again_and_another_one_not(sim):
    first, again, other = (sim.json("exercise", "--seed", seed)[0] for seed in (5, 5, 6))
    assert first == again
    assert first["settings"] != other["settings"]
    sim.refused(["--seed", "'-1'"], "exercise", "--seed=-1", code_wanted=2)


@check
def the_blocks_stay_in_a_directory_that_is_given(sim):
    code, _, err = sim.run("exercise", "--dir", sim.folder)
    assert code == 0, err
    assert (sim.folder / "quire-exercise-blocks.bin").stat().st_size > 1_000_000
    sim.refused(["no/such", "No such file"], "exercise", "--dir", "no/such")


@check
def exact_figures_of_papers_are_within(sim):
    for figure in ("mooncake", "vattention", "sharing"):
        report, out = sim.json("paper", figure, "--reduced")
        assert report["figures"][0]["within"] and "OUTSIDE" not in out
        assert all(row["verdict"] in ("within", "no verdict") for row in report["figures"][0]["rows"])
    sim.refused(["fig3", "fig2"], "paper", "fig3", code_wanted=2)


@check
def systems_run_side_by_side(sim):
    report, out = sim.json("run", "--requests", 300, "--rate", 3, "--system", "quire,vattention,orca-max,fastertransformer")
    assert [one["finished"] for one in report["systems"]] == [300] * 4
    for one in report["systems"]:
        assert one["ttft_s"]["p50"] <= one["ttft_s"]["p99"] <= one["ttft_s"]["max"]
        assert abs(sum(one["memory"][key] for key in ("written", "reserved", "unused", "rounding", "free")) - 1) < 1e-9
    assert "million a second" in out
    sim.refused(["normal:1,2", "lognormal"], "run", "--prompt", "normal:1,2")
    sim.refused(["poisson"], "run", "--arrivals", "never")
    sim.refused(["--cost", "opt-13b"], "run", "--cost", "h100")
    points = sim.file("gpu.csv", "prompt_tokens,decode_rows,ms\n128,0,48\n512,0,106\n0,1,47\n0,64,128\n")
    report, _ = sim.json("run", "--requests", 50, "--cost", points)
    assert report["systems"][0]["cost"] == f"points of {points}"


@check
def latency_against_rate_has_a_knee(sim):
    page = sim.folder / "rates.html"
    report, out = sim.json("run", "--rates", "4,0.5,1,2", "--requests", 200, "--blocks", 200, "--system", "quire,orca-max",
                           "--html", page)
    assert [one["rate"] for one in report["rates"]] == [0.5, 1, 2, 4]
    latencies = [one["systems"][0]["ttft_s"]["p95"] for one in report["rates"]]
    assert latencies == sorted(latencies), latencies
    assert "knee of Quire" in out and "Latency against rate" in page.read_text()
    sim.refused(["--rates", "--rate"], "run", "--rates", "1,2", "--rate", 1, code_wanted=2)


@check
def events_are_json_lines_of_known_kinds(sim):
    path = sim.folder / "events.jsonl"
    code, _, err = sim.run("run", "--requests", 50, "--rate", 4, "--blocks", 150, "--events", path)
    assert code == 0, err
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert events[0]["event"] == "run" and events[0]["block_size"] == 16 and events[0]["seed"] == 42
    kinds = {one["event"] for one in events}
    assert kinds == {"run", "step", "queued", "started", "chunk", "first_token", "preempted", "restored", "finished", "block"}, kinds
    assert max(one["block"] for one in events if one["event"] == "block") == 149
    page = sim.folder / "page.html"
    code, out, err = sim.run("page", path, page)
    assert code == 0 and "steps" in out, err
    assert all(words in page.read_text() for words in ("KV memory over time", "Requests one by one", "Block map", "quire sim run"))
    sim.refused(["bad.jsonl", "line 1"], "page", sim.file("bad.jsonl", "{}\n"), page)
    sim.refused(["--events", "2 systems"], "run", "--system", "quire,orca-max", "--events", path)


@check
def records_of_requests_have_chunks_preemptions_and_restorations(sim):
    report, _ = sim.json("run", "--requests", 100, "--rate", 4, "--blocks", 150)
    records = report["systems"][0]["records"]
    assert len(records) == 100 and report["systems"][0]["preemptions"] > 0
    for one in records:
        assert len(one["restored"]) == len(one["preempted_ns"])
        assert one["chunks"][0][0] == one["start_ns"]
        for preempted, (begin, end, tokens) in zip(one["preempted_ns"], one["restored"]):
            assert one["arrival_ns"] <= preempted <= begin < end <= one["finish_ns"] and tokens > 0


@check
def numbers_that_cannot_be_are_refused_and_not_cut(sim):
    two_to_64 = "18446744073709551616"
    rows = sim.file("rows.csv", "prompt_tokens,output_tokens\n10,5\n20,6\n")
    for words, args in (
            (["--seed", two_to_64, "18446744073709551615"], ("exercise", "--seed", two_to_64)),
            (["--blocks", "99999999999", "fewer digits"], ("exercise", "--blocks", "99999999999")),
            (["--rate", "'abc'", "a number"], ("run", "--rate", "abc")),
            (["--rates", "nan"], ("run", "--rates", "1,nan")),
            (["--speed", "nan"], ("trace", rows, "--speed", "nan")),
            (["--limit", "'-1'"], ("trace", rows, "--limit=-1")),
            (["--limit", two_to_64], ("trace", rows, "--limit", two_to_64)),
            (["--begin", "0.5"], ("trace", rows, "--begin", "0.5")),
            (["--arrivals", "--rate"], ("trace", rows, "--arrivals", "gamma:2")),
            (["--roofline", "--cost"], ("run", "--cost", "yi-34b", "--roofline", "1,2,3,4")),
            (["--blocks", "--kv-bytes"], ("run", "--blocks", 100, "--kv-bytes", "12GiB"))):
        sim.refused(words, *args, code_wanted=2)
    for words, args in (
            (["--begin", "5", "3"], ("trace", rows, "--begin", 5, "--end", 3)),
            (["--page-group", "found 0", "64KiB to 2MiB"], ("run", "--system", "vattention", "--page-group", 0)),
            (["--page-group", "found 3072"], ("run", "--page-group", "3KiB")),
            (["fixed:100@200-300", "0 of 10000"], ("run", "--prompt", "fixed:100@200-300")),
            (["--max-total", "2048"], ("run", "--prompt", "fixed:3000")),
            (["quire: ", "9223372036 s"], ("run", "--requests", 20, "--roofline", "1e-9,1e-9,1e9,1e9")),
            (["quire: ", "9223372036 s"], ("run", "--requests", 30000, "--rate", "1e-6", "--output", "fixed:1")),
            (["late.jsonl", "9007199254740992"], ("run", "--requests", 50, "--rate", "1e-6", "--events", sim.folder / "late.jsonl")),
            (["1000000 requests", "2048"], ("exercise", "--requests", 1000000))):
        sim.refused(words, *args)
    report, _ = sim.json("exercise", "--blocks", 33, "--max-len", 520, "--requests", 20)
    assert [one["block_size"] for one in report["sweep"]] == [8, 8, 16, 16]
    assert report["command"] == "quire sim exercise --requests 20 --blocks 33 --max-len 520", report["command"]
    report, _ = sim.json("run", "--requests", 30, "--system", "contiguous")
    assert report["systems"][0]["memory"]["free"] > 0.08, "7 arrays of 2,048 leave 1,392 of 15,728 slots"


@check
def traces_are_read_and_what_is_wrong_is_one_line(sim):
    good = sim.file("good.csv", "arrival_s,prompt_tokens,output_tokens\n0,10,5\n1.5,20,6\n")
    report, _ = sim.json("trace", good)
    assert report["systems"][0]["finished"] == 2
    bad = {
        "missing.csv": ("arrival_s,output_tokens\n0,5\n", ["row 1", "prompt_tokens"]),
        "negative.csv": ("prompt_tokens,output_tokens\n5,-5\n", ["row 2", "output_tokens", "-5"]),
        "unsorted.csv": ("arrival_s,prompt_tokens,output_tokens\n2,5,5\n1,5,5\n", ["row 3", "arrival_s"]),
        "nan.csv": ("arrival_s,prompt_tokens,output_tokens\nNaN,5,5\n", ["row 2", "arrival_s", "NaN"]),
        "huge.csv": ("prompt_tokens,output_tokens\n5,99999999999999999999\n", ["row 2", "output_tokens"]),
        "short.csv": ("prompt_tokens,output_tokens\n5,6\n5\n", ["row 3", "column output_tokens", "missing"]),
        "long.csv": ("prompt_tokens,output_tokens\n5,6,7\n", ["row 2", "column 3"]),
        "headless.csv": ("prompt_tokens,output_tokens\n", ["row 2", "column 1"]),
        "empty.csv": ("", ["row 1", "column 1", "empty"]),
        "cut.csv.gz": (gzip.compress(b"prompt_tokens,output_tokens\n" + b"5,6\n" * 1000)[:-20], ["row", "column", "cut short"]),
        "broken.jsonl": ('{"prompt_tokens": 5,\n', ["row 1", "column 21", "JSON"]),
    }
    for name, (content, words) in bad.items():
        sim.refused([name, *words], "trace", sim.file(name, content))
    for name, content, word in (("bom.csv", b"\xef\xbb\xbfprompt_tokens,output_tokens\n5,6\n", "byte-order mark"),
                                ("crlf.csv", b"prompt_tokens,output_tokens\r\n5,6\r\n", "CR LF")):
        code, _, err = sim.run("trace", sim.file(name, content), "--rate", 1)
        assert code == 0 and name in err and word in err and "row 1" in err and "column" in err, err


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    args = parser.parse_args()
    failed = 0
    for one in CHECKS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                one(Sim(args.binary, folder))
                print(f"ok      {one.__name__}")
            except AssertionError as error:
                failed += 1
                print(f"FAILED  {one.__name__}: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
