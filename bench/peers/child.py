"""Programs that a benchmark starts: those that print JSON, and servers."""
import json
import os
import socket
import subprocess
import time
import urllib.request


class Failed(Exception):
    """A program failed; the text says which and its last words."""


def run_json(command, env=None):
    """What the program prints. `env` is added to the environment."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, **(env or {})})
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise Failed(f"{' '.join(command[:2])}: exit code {done.returncode}: {lines[-1]}")
    return json.loads(done.stdout)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server for the time of a `with`. It is ready when GET `ready_path` answers 200."""

    def __init__(self, command, port, ready_path, patience_s=300):
        self.command, self.ready_path, self.patience_s = command, ready_path, patience_s
        self.url = f"http://127.0.0.1:{port}"

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + self.patience_s
        while not self.is_ready():
            if self.process.poll() is not None:
                raise Failed(f"{self.command[0]}: exit code {self.process.returncode} before it served")
            if time.monotonic() > deadline:
                self.__exit__()
                raise Failed(f"{self.command[0]}: does not serve after {self.patience_s} s")
            time.sleep(0.1)
        return self

    def is_ready(self):
        try:
            with urllib.request.urlopen(self.url + self.ready_path, timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
