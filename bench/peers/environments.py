"""Python environments of the peers, made on first use and kept in the cache directory, so that every clone shares them.

What is installed is named in requirements/NAME.txt, with versions; requirements/NAME.no-deps.txt goes in first, without
what it depends on. Packages come from PyPI; those that are only there as source are built for this very CPU, which takes
minutes. When the requirements change, the environment is made anew.
"""
import os
import subprocess
import sys
from pathlib import Path

from child import Failed

REQUIREMENTS = Path(__file__).with_name("requirements")
AVX2_ONLY = "-DGGML_NATIVE=OFF"  # the default of llama.cpp for x86 is then AVX2, FMA, F16C and nothing newer
SERVER_ONLY = ("-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_OPENSSL=OFF "
               "-DLLAMA_USE_PREBUILT_UI=OFF")
# Name: the requirements and the CMake arguments of packages that are built.
ENVIRONMENTS = {
    "llama-cpp": ("llama-cpp", ""),
    "llama-cpp-avx2": ("llama-cpp", AVX2_ONLY),
    "llama-server": ("llama-server", SERVER_ONLY),
    "llama-server-avx2": ("llama-server", f"{SERVER_ONLY} {AVX2_ONLY}"),
    "openvino": ("openvino", ""),
    "vllm": ("vllm", ""),
}


def cache_directory():
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "quire" / "peers"


def recipe(name):
    """What decides the content of an environment, as the text of its stamp."""
    requirements, cmake_args = ENVIRONMENTS[name]
    texts = [f"cmake: {cmake_args}\n"]
    for file in (f"{requirements}.no-deps.txt", f"{requirements}.txt"):
        if (REQUIREMENTS / file).exists():
            texts.append(f"{file}:\n{(REQUIREMENTS / file).read_text()}")
    return "".join(texts)


def pinned(requirements, package):
    """The version that is installed."""
    for line in (REQUIREMENTS / f"{requirements}.txt").read_text().splitlines():
        if line.startswith(f"{package}=="):
            return line.split("==")[1]
    raise KeyError(f"{package} in {requirements}.txt")


def pip_commands(name):
    """Arguments of pip, in order."""
    requirements, cmake_args = ENVIRONMENTS[name]
    # pip keeps wheels it built by their source alone: not for builds with other arguments.
    common = ["install", "-q", "--disable-pip-version-check", *(["--no-cache-dir"] if cmake_args else [])]
    first = REQUIREMENTS / f"{requirements}.no-deps.txt"
    if first.exists():
        yield [*common, "--no-deps", "-r", str(first)]
    yield [*common, "-r", str(REQUIREMENTS / f"{requirements}.txt")]


def python_of(name):
    """The interpreter of environment `name`, which is made if it is not there."""
    folder = cache_directory() / name
    python, stamp = folder / "bin" / "python", folder / "stamp"
    if stamp.exists() and stamp.read_text() == recipe(name):
        return str(python)
    print(f"peers: making a Python environment in {folder} (what has to be built takes a while)", file=sys.stderr)
    base = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
    build = {"CMAKE_ARGS": ENVIRONMENTS[name][1], "LLAMA_CPP_BUILD_JOBS": str(len(os.sched_getaffinity(0)))}
    try:
        subprocess.run([base, "-m", "venv", "--clear", str(folder)], check=True, stdin=subprocess.DEVNULL)
        for command in pip_commands(name):
            subprocess.run([python, "-m", "pip", *command], check=True, stdin=subprocess.DEVNULL, env={**os.environ, **build})
    except subprocess.CalledProcessError as error:
        raise Failed(f"no environment {folder}: {error}") from error
    stamp.write_text(recipe(name))
    return str(python)
