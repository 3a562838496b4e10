"""Starts `quire serve` for a test and stops it again; reads its metrics."""

import json
import re
import signal
import subprocess
import time
import urllib.request

PATIENCE_S = 300  # bounds waits on slow machines; nothing is measured with it


class Server:
    def __init__(self, binary, model, *flags):
        self.process = subprocess.Popen(
            [binary, "serve", model, "--port", "0", "--json", *flags],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the server did not start: " + self.process.stderr.read())
        self.info = json.loads(line)
        self.address = self.info["address"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def stop(self, wait=True):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S) if wait else None

    def post(self, path, body):
        """(status, headers, parsed body) of a plain POST."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.headers, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, error.headers, json.loads(error.read())

    def get(self, path):
        try:
            with urllib.request.urlopen(self.address + path, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self):
        """{"name{labels without model}": value}; raises on a line that is not in the text format."""
        status, text = self.get("/metrics")
        assert status == 200 and text.endswith("\n")
        sample = re.compile(r'^([a-z_:][a-z0-9_:]*)(\{(?:[a-z_]+="(?:[^"\\]|\\["\\n])*",?)*\})? (\S+)$')
        values, types = {}, {}
        for line in text.splitlines():
            if line.startswith("# HELP "):
                continue
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                assert name not in types and kind in ("counter", "gauge", "histogram"), line
                types[name] = kind
                continue
            match = sample.match(line)
            assert match, "not a sample: " + line
            base = re.sub(r"_(bucket|sum|count)$", "", match[1])
            assert match[1] in types or types.get(base) == "histogram", "a sample without type: " + line
            labels = re.sub(r'model="[^"]*",?', "", match[2] or "").replace(",}", "}").replace("{}", "")
            values[match[1] + labels] = float(match[3])
        return values

    def wait_idle(self):
        """Until nothing runs or waits and every block is back; raises if that does not come."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            now = self.metrics()
            busy = {k: now[k] for k in ("quire_requests_running", "quire_requests_waiting", "quire_kv_blocks_used")
                    if now[k] != 0}
            if not busy:
                return now
            if time.monotonic() > deadline:
                raise AssertionError(f"not idle: {busy}")
            time.sleep(0.01)
