#!/usr/bin/env python3
"""The command line as a user meets it: outputs, errors of one line, exit codes, closed pipes, Ctrl-C.

    cli_check.py --binary build/quire --model SmolLM2.gguf [--only SUBSTRING]
    cli_check.py --binary build/quire --model SmolLM2.gguf --write    makes score_digests.json anew

score_digests.json holds digests of what `score` prints: every CPU tier of every machine must reproduce them. Prints one
line per check; exit code 1 if any failed. Needs nothing but Python.
"""
import argparse
import hashlib
import http.server
import json
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

DIGESTS = Path(__file__).with_name("score_digests.json")
PROMPT = "The capital of France is"
PATIENCE_S = 120
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


class Quire:
    def __init__(self, binary, model):
        self.binary, self.model = binary, model

    def run(self, command, *args, stdin="", env=None, model=None, **options):
        """(exit code, stdout, stderr)"""
        done = subprocess.run([self.binary, command, model or self.model, *args], input=stdin, capture_output=True, text=True,
                              timeout=PATIENCE_S, env={**os.environ, **(env or {})}, **options)
        return done.returncode, done.stdout, done.stderr

    def ok(self, command, *args, **options):
        code, out, err = self.run(command, *args, **options)
        assert code == 0, f"exit code {code}: {err}"
        return out

    def refused(self, code_wanted, words, command, *args, **options):
        """It must fail with one line on stderr that holds all the words, and print nothing else."""
        code, out, err = self.run(command, *args, **options)
        assert code == code_wanted, f"found exit code {code}, wanted {code_wanted}: {err}"
        assert err.startswith("quire: ") and err.count("\n") == 1, f"wanted one line: {err!r}"
        for word in words:
            assert word in err, f"'{word}' is not in {err!r}"
        assert out == "", out


@check
def generate_prints_the_text_and_one_object_with_json(quire):
    text = quire.ok("generate", PROMPT, "--max-tokens", "8")
    answer = json.loads(quire.ok("generate", PROMPT, "--max-tokens", "8", "--json"))
    assert text == answer["text"] + "\n"
    assert len(answer["token_ids"]) == 8 and answer["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 8
    assert set(answer) >= {"text", "token_ids", "finish_reason", "usage", "timings"}


@check
def ids_are_used_as_given(quire):
    ids = json.loads(quire.ok("tokenize", PROMPT))
    by_text = json.loads(quire.ok("generate", PROMPT, "--max-tokens", "4", "--json"))
    by_ids = json.loads(quire.ok("generate", "--ids", ",".join(map(str, ids)), "--max-tokens", "4", "--json"))
    assert by_text["token_ids"] == by_ids["token_ids"] and by_ids["usage"]["prompt_tokens"] == len(ids)


@check
def a_seed_repeats_and_a_stop_string_does_not_leak(quire):
    flags = [PROMPT, "--max-tokens", "24", "--temperature", "1.2", "--seed", "7", "--json"]
    first, second = (json.loads(quire.ok("generate", *flags)) for _ in range(2))
    assert first["token_ids"] == second["token_ids"] and first["seed"] == 7
    whole = quire.ok("generate", PROMPT, "--max-tokens", "8").rstrip("\n")
    stop = whole[3:6]
    stopped = json.loads(quire.ok("generate", PROMPT, "--max-tokens", "8", "--stop", stop, "--json"))
    assert stopped["text"] == whole[:whole.index(stop)] and stopped["finish_reason"] == "stop"


@check
def end_tokens_end_unless_ignored(quire):
    first = json.loads(quire.ok("generate", "Hi", "--ignore-eos", "--max-tokens", "1", "--json"))["token_ids"][0]
    ended = json.loads(quire.ok("generate", "Hi", "--stop-tokens", str(first), "--json"))
    assert ended["token_ids"] == [] and ended["finish_reason"] == "stop" and ended["stop_token"] == first
    assert ended["usage"]["completion_tokens"] == 0
    on = json.loads(quire.ok("generate", "Hi", "--ignore-eos", "--max-tokens", "3", "--json"))
    assert len(on["token_ids"]) == 3


@check
def tokenize_reads_lines_and_texts(quire):
    lines = quire.ok("tokenize", "--json-lines", stdin='"a b"\n"caf\\u00e9 <|im_end|>"\n""\n')
    arrays = [json.loads(line) for line in lines.splitlines()]
    assert len(arrays) == 3 and arrays[2] == [] and 2 not in arrays[1]
    assert json.loads(quire.ok("tokenize", stdin="a b")) == arrays[0] == json.loads(quire.ok("tokenize", "a b"))
    assert json.loads(quire.ok("tokenize", "--special", "<|im_end|>")) == [2]
    assert json.loads(quire.ok("tokenize", "--bos", "a b")) == [1, *arrays[0]]
    quire.refused(1, ["line 1", "an integer", "a string"], "tokenize", "--json-lines", stdin="5\n")


def score_lines(quire):
    ids = json.loads(quire.ok("tokenize", "Blocks of memory are given to those who ask, and come back when they are done."))
    return "".join(json.dumps(line) + "\n" for line in (
        {"ids": ids, "from": 0, "top": 5},
        {"ids": ids[:9], "from": 8, "top": 100},
        {"ids": ids[::-1] * 4, "from": 60},
    ))


@check
def score_gives_rows_in_order_whatever_is_batched(quire):
    lines = score_lines(quire)
    together = quire.ok("score", "--json-lines", stdin=lines * 3)
    alone = "".join(quire.ok("score", stdin=line) for line in lines.splitlines(keepends=True))
    assert together == alone * 3
    first = json.loads(together.splitlines()[0])["rows"]
    assert [row["position"] for row in first] == list(range(len(first)))
    assert first[-1]["next_logprob"] is None and len(first[0]["top"]) == 5
    assert all(a[1] >= b[1] for row in first for a, b in zip(row["top"], row["top"][1:]))
    everything = json.loads(quire.ok("score", stdin='{"ids":[5,6],"top":49152}\n'))["rows"][0]
    assert len(everything["top"]) == 49152
    assert dict(everything["top"])[6] == everything["next_logprob"]


@check
def score_answers_a_caller_that_waits_for_each_line(quire):
    with subprocess.Popen([quire.binary, "score", quire.model], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for _ in range(2):
            process.stdin.write(b'{"ids":[5,6,7]}\n')
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["rows"]
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


@check
def score_refuses_a_line_after_answering_those_before(quire):
    code, out, err = quire.run("score", stdin='{"ids":[5,6]}\n{"ids":[5,99999999]}\n{"ids":[5,6]}\n')
    assert code == 1 and len(out.splitlines()) == 1 and "line 2" in err and "99999999" in err and err.count("\n") == 1
    for line, words in {'{"ids":[]}': ["ids", "empty"], '{"ids":[1],"from":1}': ["from"], '{"ids":[1.5]}': ["ids[0]"],
                        '{"ids":[1],"tpo":3}': ["tpo"], "[1]": ["object"], '{"ids":[1],"top":-1}': ["top"]}.items():
        quire.refused(1, ["line 1", *words], "score", stdin=line + "\n")


@check
def every_tier_reproduces_the_committed_digests(quire):
    lines = score_lines(quire)
    wanted = json.loads(DIGESTS.read_text())["score"]
    ran = []
    for tier in ["scalar", "avx2", "avxvnni", "avx512", "avx512vnni"]:
        code, out, err = quire.run("score", stdin=lines, env={"QUIRE_CPU": tier})
        if code != 0:
            assert tier in err and ran, f"{tier}: {err}"  # this CPU lacks it; scalar runs everywhere
            continue
        ran.append(tier)
        found = hashlib.sha256(out.encode()).hexdigest()
        assert found == wanted, f"{tier}: found {found}, wanted {wanted}"


@check
def packed_weights_from_disk_give_the_committed_digests(quire):
    lines = score_lines(quire)
    wanted = json.loads(DIGESTS.read_text())["score"]
    with tempfile.TemporaryDirectory() as root:
        flags = ["--repack-cache", f"{root}/strips"]

        def score(noted):
            code, out, err = quire.run("score", *flags, stdin=lines)
            assert code == 0 and hashlib.sha256(out.encode()).hexdigest() == wanted, err
            assert (noted in err) if noted else err == "", err

        score("")  # packs and writes
        path, = Path(root, "strips").iterdir()
        inode = path.stat().st_ino
        score("")  # maps
        assert path.stat().st_ino == inode
        with open(path, "r+b") as file:
            file.seek(50_000_000)
            flipped = file.read(1)[0] ^ 1
            file.seek(50_000_000)
            file.write(bytes([flipped]))
        score("are damaged")
        assert path.stat().st_ino != inode
        score("")


@check
def inspect_shows_what_the_file_holds(quire):
    shown = json.loads(quire.ok("inspect", "--json", "--tensors"))
    assert shown["config"]["layers"] == 30 and shown["tokenizer"]["vocab_size"] == 49152
    assert shown["tensor_types"]["Q4_1"]["tensors"] == 210 and len(shown["tensors"]) == 272
    assert shown["keys"]["general.architecture"] == "llama"
    assert "SmolLM2" in quire.ok("inspect") or "Smollm2" in quire.ok("inspect")


@check
def quantize_writes_a_model_that_runs_and_replaces_nothing_unasked(quire):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "q8.gguf")
        told = json.loads(quire.ok("quantize", path, "--to", "q8_0", "--json"))
        assert told["to"] == "Q8_0" and told["bytes_after"] == os.path.getsize(path) and os.listdir(folder) == ["q8.gguf"]
        assert all(tensor["rmse"] <= 0.01 * tensor["rms"] for tensor in told["tensors"])
        shown = json.loads(quire.ok("inspect", "--json", model=path))
        before = json.loads(quire.ok("inspect", "--json"))
        assert shown["config"] == before["config"] and set(shown["tensor_types"]) == {"F32", "Q8_0"}
        assert quire.ok("generate", PROMPT, "--max-tokens", "4", model=path) == quire.ok("generate", PROMPT, "--max-tokens", "4")
        quire.refused(1, ["exists already"], "quantize", path, "--to", "q8_0")
        quire.refused(1, ["one file"], "quantize", quire.model, "--to", "q8_0", "--force")
        quire.refused(1, ["'nothing*'", "matches no tensor"], "quantize", path + "2", "--to", "f16", "--tensor-type", "nothing*=Q8_0")
        quire.refused(2, ["Q9_9", "Q4_K"], "quantize", path + "2", "--to", "f16", "--tensor-type", "a=Q9_9")
        quire.refused(2, ["--to"], "quantize", path + "2", "--to", "q9_9")
        assert "Q4_1 -> Q8_0" in quire.ok("quantize", path, "--to", "q8_0", "--force")
        assert os.listdir(folder) == ["q8.gguf"]


class FakeModelServer(http.server.BaseHTTPRequestHandler):
    """As many tokens as asked for; a prompt of 7 tokens is refused."""

    def log_message(self, *args):
        pass

    def answer(self, status, kind, text):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        self.answer(200, "application/json", '{"data": [{"id": "fake"}]}')

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(request)
        if len(request["prompt"]) == 7:
            return self.answer(503, "application/json", '{"error": {"message": "no room"}}')
        tokens = request["max_tokens"]
        parts = [{"choices": [{"text": "a", "finish_reason": "length" if i == tokens - 1 else None}]} for i in range(tokens)]
        parts.append({"choices": [], "usage": {"completion_tokens": tokens}})
        self.answer(200, "text/event-stream", "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n")


@check
def bench_times_the_engine_in_this_process(quire):
    # Long answers: on a busy machine the first must not end before the last request is there.
    steps = json.loads(quire.ok("bench", quire.model, "--batch", "1,3", "--context", "16", "--steps", "200", "--json", "-", model="step"))
    assert [row["metric"] for row in steps["rows"]] == ["decode batch 1 context 16", "decode batch 3 context 16"], steps
    prefill = json.loads(quire.ok("bench", quire.model, "--tokens", "16", "--repeat", "2", "--json", "-", model="prefill"))
    assert [row["metric"] for row in prefill["rows"]] == ["prefill 16"], prefill
    for row in steps["rows"] + prefill["rows"]:
        assert set(row) == {"metric", "value", "unit", "against", "peer", "ratio", "spread", "target", "bound", "holds"}, row
        assert row["value"] > 0 and row["unit"] == "tokens/s" and row["holds"] is None, row
    quire.refused(1, ["--batch", "found 3", "at most"], "bench", quire.model, "--batch", "3", "--max-batch-rows", "2", model="step")
    quire.refused(1, ["KV cache holds", "--kv-memory"], "bench", quire.model, "--batch", "1", "--kv-memory", "8MiB", model="step")


@check
def bench_serve_measures_any_server_and_compares_two_runs(quire):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeModelServer) as server, tempfile.TemporaryDirectory() as folder:
        server.requests = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url, paths = f"http://127.0.0.1:{server.server_port}", [os.path.join(folder, name) for name in ("a.json", "b.json")]
        shown = quire.ok("bench", url, "--clients", "3", "--requests", "12", "--warmup", "2", "--prompt", "uniform:20,30", "--output", "5",
                         "--shared-prefix", "8", "--slo", "ttft=1min,itl=1min", "--json", paths[0], model="serve")
        assert "time to first token" in shown and "goodput: 100.0 %" in shown
        assert len(server.requests) == 14 and len({tuple(request["prompt"][:8]) for request in server.requests}) == 1
        assert len({tuple(request["prompt"]) for request in server.requests}) == 14
        assert all(28 <= len(request["prompt"]) <= 38 and request["ignore_eos"] for request in server.requests)
        told = json.load(open(paths[0]))
        rows = {row["metric"]: row["value"] for row in told["rows"]}
        assert told["name"] == "serve" and told["subject"] == "fake" and rows["completed"] == 12 and rows["failed"] == 0
        first = [request["prompt"] for request in server.requests]
        server.requests.clear()
        quire.ok("bench", url, "--rate", "2000", "--arrivals", "gamma:2", "--requests", "12", "--warmup", "2", "--prompt", "uniform:20,30",
                 "--output", "5", "--shared-prefix", "8", "--json", paths[1], model="serve")
        assert sorted(request["prompt"] for request in server.requests) == sorted(first), "the seed gives the same requests"
        lines = Path(folder) / "requests.jsonl"
        quire.ok("bench", "--requests-to", str(lines), "--model", "fake", "--requests", "12", "--warmup", "2", "--prompt", "uniform:20,30",
                 "--output", "5", "--shared-prefix", "8", model="serve")
        written = [json.loads(line) for line in lines.read_text().splitlines()]
        assert sorted(written, key=json.dumps) == sorted(server.requests, key=json.dumps), "what is written is what is sent"
        quire.refused(1, ["--requests-to", "wanted one"], "bench", url, "--requests-to", str(lines), model="serve")
        quire.refused(1, ["--duration", "--requests"], "bench", "--requests-to", str(lines), "--duration", "1s", model="serve")
        compared = quire.ok("bench", *paths, model="compare")
        assert "ttft p99" in compared and 'differs in loop: "closed" and "open"' in compared
        trace = os.path.join(folder, "trace.csv")
        Path(trace).write_text("arrival_s,prompt_tokens,output_tokens\n0,12,3\n0.01,7,4\n0.02,900,4\n0.03,13,2\n")
        shown = quire.ok("bench", url, "--trace", trace, "--replay", "--max-total", "100", model="serve")
        assert "1 x HTTP 503: no room" in shown and "1 requests of the workload" in shown and "failed: 1 of 3" in shown
        quire.refused(1, ["--replay", "--trace"], "bench", url, "--replay", model="serve")
        quire.refused(1, ["--slo", "'5'", "1.5s"], "bench", url, "--slo", "ttft=5", model="serve")
        quire.refused(1, ["trace.csv", "byte 0"], "bench", paths[0], trace, model="compare")
        server.shutdown()
    quire.refused(1, ["https"], "bench", "https://127.0.0.1", model="serve")
    quire.refused(1, ["http://HOST:PORT", "--requests-to"], "bench", "--requests", "1", model="serve")
    quire.refused(1, ["does not answer"], "bench", url, model="serve")


@check
def chat_keeps_the_history_until_it_is_reset(quire):
    flags = ["--temperature", "0", "--max-tokens", "12"]
    question = "What is the name of this town?\n"
    told = "The town is called Springfield and lies at a river.\n"
    fresh = quire.ok("chat", *flags, stdin=question)
    after = quire.ok("chat", *flags, stdin=told + question)
    reset = quire.ok("chat", *flags, stdin=told + "/reset\n" + question)
    first = quire.ok("chat", *flags, stdin=told)
    assert after.startswith(first) and reset == first + fresh and after != reset


def read_until(fd, done, patience_s=PATIENCE_S):
    seen, end = b"", time.monotonic() + patience_s
    while not done(seen):
        ready, _, _ = select.select([fd], [], [], max(0, end - time.monotonic()))
        assert ready, f"nothing came; so far {seen!r}"
        seen += os.read(fd, 4096)
    return seen


@check
def ctrl_c_stops_the_answer_and_not_the_chat(quire):
    parent, child = pty.openpty()
    with subprocess.Popen([quire.binary, "chat", quire.model, "--temperature", "0", "--min-p", "0", "--ctx", "8192"],
                          stdin=child, stdout=child, stderr=child, start_new_session=True) as process:
        os.close(child)
        read_until(parent, lambda seen: seen.endswith(b"> "))
        os.write(parent, b"Write a long story about a dragon.\n")
        read_until(parent, lambda seen: len(seen) > 100)  # the echo of the question, and some of the answer
        process.send_signal(signal.SIGINT)
        read_until(parent, lambda seen: seen.endswith(b"> "))
        os.write(parent, b"/exit\n")
        assert process.wait(PATIENCE_S) == 0
    os.close(parent)


@check
def wrong_command_lines_are_refused(quire):
    quire.refused(2, ["frob", "generate"], "frob")
    quire.refused(2, ["prompt", "--ids"], "generate")
    quire.refused(2, ["--temperature", "nan"], "generate", "x", "--temperature", "nan")
    quire.refused(2, ["--top-p"], "generate", "x", "--top-p", "0")
    quire.refused(2, ["--kv-memory", "2x", "GiB"], "generate", "x", "--kv-memory", "2x")
    quire.refused(2, ["--block-size", "17"], "generate", "x", "--block-size", "17")
    quire.refused(2, ["--logprobs", "--json"], "generate", "x", "--logprobs", "1")
    quire.refused(2, ["--frob"], "serve", "--frob")


@check
def numbers_are_decimal_and_neither_wrap_nor_stick_at_the_end(quire):
    for seed in ("-1", "9223372036854775808", "99999999999999999999", "0x10", "1e3", "seven", ""):
        quire.refused(2, ["--seed", seed], "generate", "x", "--seed", seed)
    for value in ("010", "0x8", "1.5", "", "99999999999999999999"):
        quire.refused(2, ["--max-tokens", value], "generate", "x", "--max-tokens", value)
    for ids in ("", "1,,2", "1,x", "1,2,", "010x", "4294967297"):
        quire.refused(2, ["--ids", "1,2,3"], "generate", "--ids", ids)
        quire.refused(2, ["--stop-tokens", "1,2,3"], "generate", "x", "--stop-tokens", ids)
    quire.refused(2, ["--port", "70000", "65535"], "serve", "--port", "70000")
    quire.refused(2, ["--port", "-1", "65535"], "serve", "--port", "-1")
    quire.refused(2, ["--max-queue-seconds", "nan"], "serve", "--max-queue-seconds", "nan")
    quire.refused(2, ["--max-batch-tokens", "65537", "65536"], "serve", "--max-batch-tokens", "65537")
    spaced = json.loads(quire.ok("generate", "--ids", "5, 6", "--max-tokens", "1", "--json"))
    assert spaced["usage"]["prompt_tokens"] == 2


@check
def what_would_have_no_effect_is_refused(quire):
    quire.refused(2, ["--stop", "empty"], "generate", "x", "--stop", "")
    for flag in ("--kv-swap-dir", "--repack-cache", "--command-log", "--alias", "--api-key-file"):
        quire.refused(2, [flag, "empty"], "serve", flag, "")
    quire.refused(2, ["--kv-memory", "found 0"], "serve", "--kv-memory", "0")
    quire.refused(2, ["--kv-swap-bytes", "--kv-swap-dir"], "serve", "--kv-swap-bytes", "1GiB")
    quire.refused(1, ["--kv-page-group", "vattention", "paged"], "generate", "x", "--kv-page-group", "64KiB")
    quire.refused(2, ["--min-tokens is 5", "--max-tokens", "2"], "generate", "x", "--min-tokens", "5", "--max-tokens", "2")
    quire.refused(1, ["49153", "49152"], "generate", "x", "--logprobs", "49153", "--json")
    quire.refused(1, ["line 1", "49153", "49152"], "score", stdin='{"ids":[5],"top":49153}\n')


@check
def a_length_penalty_may_have_a_fraction(quire):
    flags = [PROMPT, "--beam-width", "2", "--max-tokens", "4", "--json"]
    scores = [json.loads(quire.ok("generate", *flags, "--length-penalty", penalty))["beam_score"] for penalty in ("0", "0.5", "1")]
    assert scores[0] < scores[1] < scores[2] < 0, scores
    quire.refused(2, ["--length-penalty", "10.5", "10"], "generate", *flags, "--length-penalty", "10.5")


@check
def what_cannot_be_done_is_said(quire):
    quire.refused(1, ["GGUF"], "inspect", model=__file__)
    quire.refused(1, ["no-such-file"], "generate", "x", model="no-such-file.gguf")
    quire.refused(1, ["QUIRE_CPU", "frob", "avx2"], "generate", "x", env={"QUIRE_CPU": "frob"})
    quire.refused(1, ["QUIRE_TEST_F32", "2"], "generate", "x", env={"QUIRE_TEST_F32": "2"})
    quire.refused(1, ["49152"], "generate", "--ids", "49152")
    quire.refused(1, ["8192"], "generate", "--ids", "5", "--max-tokens", "8192")
    with tempfile.NamedTemporaryFile() as cut:
        cut.write(Path(quire.model).read_bytes()[:1 << 20])
        cut.flush()
        quire.refused(1, [], "generate", "x", model=cut.name)


@check
def a_simulation_writes_a_page_that_says_how_it_was_made(quire):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        quire.ok("sim", "--seed", "7", "--max-len", "600,700", "--html", str(path), model="exercise")
        page = path.read_text()
        assert page.startswith("<!DOCTYPE html>") and page.endswith("</html>\n")
        assert page.count("quire sim exercise --seed 7 --max-len 600,700") > 2
        quire.ok("sim", "--requests", "200", "--rate", "4", "--system", "quire,orca-max", "--html", str(path), model="run")
        page = path.read_text()
        assert "Systems side by side" in page and "Orca (Max): KV memory and steps" in page
        code, _, err = quire.run("sim", "--html", str(Path(folder) / "none" / "page.html"), model="exercise")
        assert code == 1 and err.count("\n") == 1 and "none/page.html: No such file" in err, err


@check
def closed_and_full_outputs_are_noticed(quire):
    command = [quire.binary, "tokenize", quire.model, "a b"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "No space left" in done.stderr
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "standard output" in done.stderr
    done = subprocess.run(["sh", "-c", '"$@" <&-', "sh", quire.binary, "tokenize", quire.model], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "[]\n"
    done = subprocess.run(["sh", "-c", '"$@" | head -n 1', "sh", quire.binary, "inspect", quire.model], capture_output=True, text=True)
    assert done.stderr == "" and done.stdout.startswith("file ")


@check
def beam_searches_are_recorded_as_who_continued_whom(quire):
    with tempfile.TemporaryDirectory() as folder:
        prompts, out = Path(folder) / "prompts.jsonl", Path(folder) / "forks"

        def record(text):
            prompts.write_text(text)
            done = subprocess.run([quire.binary, "sim", "record-beams", quire.model, prompts, out, "--width", "2,3", "--ctx", "256"],
                                  capture_output=True, text=True, timeout=PATIENCE_S)
            return done.returncode, done.stderr

        code, err = record(json.dumps({"set": "a", "prompt": PROMPT, "max_tokens": 6}) + "\n")
        assert code == 0, err
        searches = [line.split() for line in out.read_text().splitlines() if not line.startswith(("#", "quire-"))]
        assert [(one[0], one[1], len(one[3])) for one in searches] == [("a", "2", 8), ("a", "3", 12)], searches
        assert sorted(path.name for path in Path(folder).iterdir()) == ["forks", "prompts.jsonl"]
        for text, word in (("{}\n", "set"), ('{"set": "a", "prompt": "b"}\n', "max_tokens"), ("x\n", "row 1"), ("", "no prompt")):
            code, err = record(text)
            assert code == 1 and word in err and err.count("\n") == 1, err


@check
def calibrate_keeps_what_it_measured_with_its_setting(quire):
    flags = ["--seconds", "1", "--kv-memory", "64MiB", "--ctx", "256", "--max-batch-tokens", "64"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made" / "calibration.json"
        rows = json.loads(quire.ok("calibrate", *flags, "--out", str(path), "--json", "-"))["rows"]
        kept = json.loads(path.read_text())
    assert len(rows) > 30 and all(row["value"] > 0 and row["peer"] > 0 for row in rows)
    assert kept["format"] == "quire calibration" and kept["measured"]["num_points"] == len(rows)
    assert kept["version"] == 4 and kept["cost"]["interruptions"]["per_second"] >= 0 and kept["cost"]["wake"] >= 0
    assert set(kept["setting"]) == {"cpu", "cpu_tier", "threads", "model", "model_digest", "kv_type", "block_size",
                                    "quire_version"}
    assert kept["setting"]["block_size"] == 16 and len(kept["setting"]["model_digest"]) == 64
    assert len(kept["cost"]["by_tokens"]) > 16
    quire.refused(1, ["calibrate", "paged", "vattention"], "calibrate", *flags, "--kv-manager", "vattention")
    quire.refused(1, ["/nowhere/at/all"], "calibrate", *flags, "--out", "/proc/nowhere/at/all/c.json")
    quire.refused(2, ["--seconds"], "calibrate", "--seconds", "0")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--only", default="", help="checks whose name holds this")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    quire = Quire(args.binary, args.model)
    if args.write:
        digest = hashlib.sha256(quire.ok("score", stdin=score_lines(quire)).encode()).hexdigest()
        DIGESTS.write_text(json.dumps({"score": digest}, indent=2) + "\n")
        return 0
    failed = 0
    chosen = [function for function in CHECKS if args.only in function.__name__]
    for function in chosen:
        try:
            function(quire)
            print(f"ok      {function.__name__}", flush=True)
        except Exception as error:  # a failed check is a line, not the end
            failed += 1
            print(f"FAILED  {function.__name__}: {type(error).__name__}: {error}", flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
