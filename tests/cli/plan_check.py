#!/usr/bin/env python3
"""quire plan as a user meets it: the answers in their order, JSON, a page, what serve measures, errors of one line.

    plan_check.py --binary build/quire --model MODEL.gguf

The model is SmolLM2-135M. Prints one line per check; exit code 1 if any failed.
"""
import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKS = []
QUICK = ("--roofline", "40,1", "--requests", "100")  # a machine with 40 GB/s and 1 T operations/s


def check(function):
    CHECKS.append(function)
    return function


class Plan:
    def __init__(self, binary, model, folder):
        self.binary, self.model, self.folder = binary, model, Path(folder)
        # No calibrations but those that a check makes.
        self.environment = dict(os.environ, XDG_CACHE_HOME=str(self.folder / "cache"))

    def run(self, *args, model=None):
        done = subprocess.run([self.binary, "plan", model or self.model, *map(str, args)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=300, env=self.environment)
        return done.returncode, done.stdout, done.stderr

    def json(self, *args):
        path = self.folder / "out.json"
        code, out, err = self.run(*args, "--json", path)
        assert code == 0, f"exit code {code}: {err}"
        return json.loads(path.read_text()), out

    def refused(self, words, *args, code_wanted=1, model=None):
        code, _, err = self.run(*args, model=model)
        assert code == code_wanted, f"found exit code {code}, wanted {code_wanted}: {err}"
        assert err.startswith("quire: ") and err.count("\n") == 1, f"wanted one line: {err!r}"
        for word in words:
            assert word in err, f"'{word}' is not in {err!r}"


@check
def without_a_cost_model_it_says_what_fits_and_how_to_go_on(plan):
    report, out = plan.json("--memory", "512MiB")
    assert "quire calibrate" in report["no_performance"] and "not calibrated" in out
    parts = {part["name"]: part["bytes"] for part in report["memory"]["parts"]}
    assert set(parts) == {"weights", "KV pool", "working memory", "rest"}
    assert sum(parts.values()) == report["memory"]["total_bytes"] <= 512 << 20
    assert report["memory"]["total_bytes"] + report["memory"]["spare_bytes"] == 512 << 20
    assert report["requests"]["at_full_length"] <= report["requests"]["growing"]
    assert report["serve"] in out


@check
def the_answers_come_in_their_order(plan):
    report, out = plan.json("--memory", "512MiB", "--rate", 50, "--workload", "uniform:50,300/uniform:20,200", *QUICK)
    places = [out.index(f"\n{number}. ") for number in range(1, 8)]
    assert places == sorted(places)
    found = report["performance"]
    assert found["rate"] > 0 and found["replicas"]["count"] == -(-50 // found["rate"])
    assert {one["cause"] for one in found["binding"]["reliefs"]} == {
        "KV memory", "prefill compute", "decode bandwidth", "batch cap", "queue"}
    assert found["binding"]["cause"] == found["binding"]["reliefs"][0]["cause"]
    settings = {row["setting"] for row in found["what_ifs"]}
    assert {"block size", "KV type", "context", "chunk", "prefix cache", "queue policy", "manager"} <= settings, settings
    rates = [point["rate"] for point in found["curve"]]
    assert rates == sorted(rates) and [point["holds"] for point in found["curve"]][0]
    assert found["at_rate"]["ttft_p95"] <= 1 and found["at_rate"]["itl_p99"] <= 0.1


@check
def a_seed_gives_the_same_plan_again(plan):
    args = ("--memory", "300MiB", "--workload", "uniform:20,200/uniform:5,60", "--seed", 7, *QUICK)
    assert plan.json(*args)[0] == plan.json(*args)[0]


@check
def the_page_has_it_all(plan):
    path = plan.folder / "plan.html"
    code, _, err = plan.run("--memory", "512MiB", *QUICK, "--html", path)
    assert code == 0, err
    text = path.read_text()
    for words in ("Plan for", "Memory by part", "Latency against rate", "What binds", "What-ifs", "quire serve",
                  "--roofline 40,1"):
        assert words in text, words
    assert "--ctx 4096</td><td>-</td>" in text, "what cannot be has no rate"


@check
def a_server_started_as_planned_measures_what_was_planned(plan):
    report, _ = plan.json("--memory", "400MiB", "--ctx", 1024)
    command = shlex.split(report["serve"])
    command[0] = plan.binary
    with subprocess.Popen([*command, "--port", "0", "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as server:
        summary = server.stdout.readline()
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
    path = plan.folder / "measured.json"
    path.write_text(summary)
    beside, out = plan.json("--memory", "400MiB", "--ctx", 1024, "--measured", path)
    for part in beside["memory"]["parts"]:
        if part["name"] != "rest":
            assert part["bytes"] == part["measured_bytes"], part
    assert out.count(" equal\n") == 3, out
    path.write_text('{"weight_bytes": "many"}\n')
    plan.refused(["measured.json", "weight_bytes"], "--measured", path)
    plan.refused(["no-such.json"], "--measured", "no-such.json")


@check
def traces_of_all_kinds_are_workloads(plan):
    path = plan.folder / "own.csv"
    path.write_text("prompt_tokens,output_tokens\n" + "".join(f"{20 + i},{10 + i}\n" for i in range(50)))
    report, _ = plan.json("--memory", "300MiB", "--workload", path, *QUICK)
    assert report["workload"]["mean_prompt_tokens"] == 44.5
    report, out = plan.json("--memory", "300MiB", "--workload", "conversation", "--slo", "ttft_p95=60s", *QUICK)
    assert report["workload"]["left_out"] > 0 and "left out" in out
    path.write_text("prompt_tokens,output_tokens\n5,-5\n")
    plan.refused(["--workload", "own.csv", "row 2", "output_tokens"], "--workload", path)


@check
def what_is_wrong_is_one_line(plan):
    plan.refused(["no-such.gguf"], model="no-such.gguf")
    cut = plan.folder / "cut.gguf"
    cut.write_bytes(Path(plan.model).read_bytes()[:100_000])
    plan.refused(["cut.gguf"], model=str(cut))
    plan.refused(["does not fit into 64 MiB (given by --memory)", "are needed", "--memory"], "--memory", "64MiB")
    plan.refused(["--workload", "'poetry'", "chat"], "--workload", "poetry")
    plan.refused(["--slo", "'p0'", "p1 to p99.9"], "--slo", "ttft_p0=1s")
    plan.refused(["--slo", "unit"], "--slo", "ttft_p95=1")
    plan.refused(["--arrivals", "poisson"], "--arrivals", "never")
    plan.refused(["--rate"], "--rate", "-3")
    plan.refused(["--cost", "opt-13b"], "--cost", "h100")
    plan.refused(["--calibration", "none.json"], "--calibration", "none.json")
    plan.refused(["--roofline"], "--roofline", "0,1")
    plan.refused(["--memory"], "--memory", "much", code_wanted=2)
    plan.refused(["--roofline"], "--cost", "opt-13b", "--roofline", "1,1", code_wanted=2)
    plan.refused(["the model was made for 8192"], "--ctx", 100_000)


@check
def a_pool_takes_no_more_than_is_of_use(plan):
    report, out = plan.json("--memory", "1TiB")
    assert "all that 256 requests of full context can use" in out
    pool = next(part["bytes"] for part in report["memory"]["parts"] if part["name"] == "KV pool")
    flags = shlex.split(report["serve"])
    planned = int(flags[flags.index("--kv-memory") + 1].removesuffix("MiB"))
    assert 0 <= planned * 2**20 - report["engine"]["kv_bytes"] < 2**20 and pool < 2**36, (planned, pool)
    plan.refused(["--memory", "found 0"], "--memory", "0")
    plan.refused(["--max-queue-seconds", "nan"], "--max-queue-seconds", "nan", code_wanted=2)


@check
def a_pool_of_all_mappings_has_a_plan_too(plan):
    _, out = plan.json("--memory", "20GiB", "--kv-manager", "vattention", *QUICK)
    assert "mappings allow" in out and "batch cap: twice as many requests at once" in out
    for machine in ("1e11,1e11", "1e-9,1e-9"):  # faster and slower than rates go
        plan.json("--memory", "512MiB", "--roofline", machine, "--requests", 50)


@check
def limits_that_no_rate_holds_are_said_so(plan):
    report, out = plan.json("--memory", "300MiB", "--slo", "ttft_p95=1us", "--rate", 3, *QUICK)
    assert report["performance"]["rate"] == 0 and "No rate holds" in out and "alone on the machine" in out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", required=True)
    args = parser.parse_args()
    failed = 0
    for one in CHECKS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                one(Plan(args.binary, args.model, folder))
                print(f"ok      {one.__name__}", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"FAILED  {one.__name__}: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
