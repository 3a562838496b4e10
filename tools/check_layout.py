#!/usr/bin/env python3
"""Checks the rules of the layout that a compiler does not.

  tools/check_layout.py                 all files of the source tree
  tools/check_layout.py --build DIR     also: every test on disk is registered with ctest in DIR
  tools/check_layout.py --self-test     each rule catches what it is for

The directions between modules are read from cmake/modules.txt.
"""
import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Who may include which dependency (regular expressions of include paths); nobody else does.
OWNERS = {
    r"boost/(beast|asio)": {"server", "loadgen"},
    r"boost/json": {"json"},
    r"boost/(?!beast|asio|json)": {"server", "loadgen"},
    r"utf8proc": {"text"},
    r"zstd": {"blockfile"},
    r"prometheus/": {"metrics"},
    r"openssl/": {"engine"},
    r"zlib": {"traces"},
    r"CLI/": {"apps"},
}
TEST_LIBRARIES = r"gtest/|gmock/|rapidcheck"
DEPENDENCY = "|".join(OWNERS) + "|" + TEST_LIBRARIES + "|fmt/"

# What the deciding half may not do: it has no clocks, threads, I/O or order that differs from run to run.
BANNED = {
    r"#include <(chrono|thread|mutex|shared_mutex|condition_variable|future|atomic|random|ctime|time\.h)>": "clocks, threads, randomness",
    r"#include <(iostream|fstream|ostream|istream|filesystem|cstdio|stdio\.h|unistd\.h)>": "input and output",
    r"\bstd::(chrono|thread|mutex|random_device|mt19937\w*|cout|cerr|clog|fstream|ifstream|ofstream)\b": "clocks, threads, randomness, I/O",
    r"\bstd::hash\b": "std::hash, which differs between libraries",
    r"\b(time|clock|clock_gettime|rand|getenv|printf|fprintf|fopen)\s*\(": "clocks, the environment, I/O",
    r"\bfmt::": "fmt",
}
# Files of base/ that exist to give the other half threads and CPU detection, and the one line that prints a bug.
EXEMPT = {"base/thread_pool.h", "base/thread_pool.cpp", "base/core_placement.h", "base/cpu.h", "base/cpu.cpp", "base/check.cpp"}
HASH_OF_IDS = "base/ids.h"  # std::hash<StrongId>, for look-ups in the other half

ISA_NAME = re.compile(r"(_(avx2|avxvnni|avx512|avx512vnni)(\.inl)?\.(cpp|h)|(simd256|simd512|vnni|maddubs)\.inl\.h)$")
ISA_SOURCE = re.compile(r"_(avx2|avxvnni|avx512|avx512vnni)\.cpp$")
INTRINSICS = re.compile(r"#include <(immintrin|x86intrin|\w+mmintrin)\.h>|\b_mm(256|512)?_\w+\(|\b__m(128|256|512)[id]?\b")
MAY_PAUSE = "base/thread_pool.cpp"  # _mm_pause in the spinning barrier


def read_modules(text):
    """{module: (modules it may include, kind)}"""
    rows = [line.split(";") for line in text.splitlines() if re.match(r"[a-z]", line)]
    return {row[0].split(":")[0]: (set(row[0].split(":")[1].split()), row[2].strip()) for row in rows}


def code_only(text):
    """Without comments and the contents of strings; lines keep their numbers."""
    def blank(match):
        token = match.group()
        if token.startswith(("//", "/*")):
            return re.sub(r"[^\n]", " ", token)
        return token[0] + token[-1]
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'', blank, text, flags=re.S)


def check_source(path, text, modules):
    """Messages for one file below src/quire/ (path as in module/name) or apps/ (apps/...)."""
    module = path.split("/")[0]
    deps, kind = modules.get(module, (set(modules), "assembles"))
    is_test = bool(re.search(r"_(test|bench)\.(cpp|h)$", path))
    code = code_only(text)
    out = []

    includes = re.findall(r'^\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")', text, flags=re.M)
    for system, quoted in includes:
        name = system or quoted
        if match := re.match(r"quire/([a-z]+)/", name):
            if module != "apps" and match.group(1) not in deps | {module}:
                out.append(f"includes {name}, but {module} may include only: {', '.join(sorted(deps)) or 'nothing'}")
        for pattern, owners in OWNERS.items():
            if re.match(pattern, name) and module not in owners:
                out.append(f"includes {name}; only {', '.join(sorted(owners))} may")
        if path.endswith(".h") and module != "apps" and not is_test and re.match(DEPENDENCY, name):
            out.append(f"a public header includes a dependency's header, {name}")
        if ISA_SOURCE.search(path) and system and system not in ("cstdint", "cstddef", "immintrin.h"):
            out.append(f"includes <{name}>: an inline function of it compiled for this instruction set could be linked everywhere")

    if kind == "decides" and path not in EXEMPT and not is_test:
        for pattern, what in BANNED.items():
            if path == HASH_OF_IDS and "std::hash" in pattern.replace("\\b", ""):
                continue
            if match := re.search(pattern, code):
                out.append(f"the deciding half may not use {what}: '{match.group().strip()}'")
        unordered = set(re.findall(r"\bunordered_(?:map|set)<[^;{}()]*>\s+(\w+)", code))
        for name in unordered:
            if re.search(rf":\s*{name}\s*\)|\b{name}\.(c?begin|extract)\(", code):
                out.append(f"iterates over the unordered container '{name}': the order differs between libraries")

    if not ISA_NAME.search(path) and path != MAY_PAUSE and INTRINSICS.search(code):
        out.append("intrinsics belong into files with an instruction set's suffix (CONTRIBUTING.md)")
    if is_test:
        if match := re.search(r"\b(sleep_for|sleep_until|usleep|nanosleep|GTEST_SKIP)\b", code):
            out.append(f"a test may not sleep or skip itself: '{match.group()}'")
    return out


def check_any(text):
    """Messages for any tracked text file."""
    out = []
    if match := re.search(r"(?<![\w./])/(work|root|home)/\w+", text):
        out.append(f"names a path of one machine: '{match.group()}'")
    if match := re.search(r"\b(TO[D]O|FIX[M]E)\b", text):
        out.append(f"'{match.group()}': state the limit where a user would look for it")
    return out


def tests_in(text):
    """Names of the tests that a source file defines: Suite.Name; of parameterised ones a pattern."""
    names = []
    for macro, suite, name in re.findall(r"^(TEST|TEST_F|TEST_P|TYPED_TEST|RC_GTEST_PROP)\(\s*(\w+),\s*(\w+)", text, flags=re.M):
        if macro in ("TEST_P", "TYPED_TEST"):
            names.append(rf"(\w+/)?{suite}(/\w+)?\.{name}(/.*)?")
        else:
            names.append(re.escape(f"{suite}.{name}"))
    return names


def check_registered(build, files):
    listing = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True, text=True)
    registered = [test["name"] for test in json.loads(listing.stdout)["tests"]]
    everything = "\n".join(registered)
    out = []
    for path in files:
        if not path.name.endswith("_test.cpp"):
            continue
        for name in tests_in(path.read_text()):
            if not re.search(rf"^{name}$", everything, flags=re.M):
                out.append(f"{path.relative_to(ROOT)}: the test {name} is not registered with ctest in {build}")
    return out


def self_test():
    modules = read_modules("base: ; X ; decides\nkv: base ; ; decides\nsched: kv base ; ; decides\nops: base ; ; computes\n"
                           "json: base ; ; text\nserver: json base ; ; assembles\n")
    bad = [
        ("kv/a.cpp", '#include "quire/sched/x.h"\n'),
        ("kv/a.cpp", "#include <chrono>\n"),
        ("sched/a.cpp", "int x = std::hash<int>()(1);\n"),
        ("sched/a.cpp", "std::random_device d;\n"),
        ("sched/a.h", "#include <mutex>\n"),
        ("base/a.cpp", "#include <fstream>\n"),
        ("kv/a.cpp", "std::unordered_map<int, int> seen_;\nvoid f() { for (auto& [k, v] : seen_) use(k); }\n"),
        ("ops/a.h", "#include <boost/json.hpp>\n"),
        ("ops/a.cpp", "#include <boost/json.hpp>\n"),
        ("json/a.h", "#include <boost/json.hpp>\n"),
        ("json/a.cpp", "#include <boost/beast.hpp>\n"),
        ("ops/a.cpp", "#include <immintrin.h>\n"),
        ("ops/a.cpp", "auto x = _mm256_add_ps(a, b);\n"),
        ("ops/a_avx2.cpp", "#include <vector>\n"),
        ("ops/a_test.cpp", "std::this_thread::sleep_for(x);\n"),
        ("kv/a_test.cpp", '#include "quire/ops/x.h"\n'),
    ]
    good = [
        ("kv/a.cpp", '#include "quire/base/x.h"\n// std::hash is not used; time( is a word\nauto s = "std::chrono";\n'),
        ("kv/a.cpp", "std::unordered_map<int, int> seen_;\nvoid f() { seen_.find(1); for (int x : list) use(x); }\n"),
        ("json/a.cpp", "#include <boost/json.hpp>\n"),
        ("ops/a_avx512.cpp", '#include <immintrin.h>\nauto x = _mm512_setzero_ps();\n'),
        ("base/thread_pool.h", "#include <thread>\n"),
    ]
    failures = [f"not caught: {path}: {text!r}" for path, text in bad if not check_source(path, text, modules)]
    failures += [f"wrongly caught: {path}: {text!r}: {found}" for path, text in good if (found := check_source(path, text, modules))]
    if not check_any("open('/wor" "k/x')") or not check_any("TO" "DO later") or check_any("a/wor" "k/b http://host/wor" "k/x"):
        failures.append("rules for all files")
    if tests_in("TEST(A, B) {\nTEST_P(C, D) {") != [r"A\.B", r"(\w+/)?C(/\w+)?\.D(/.*)?"]:
        failures.append("tests_in")
    return failures


def check_tree():
    modules = read_modules((ROOT / "cmake/modules.txt").read_text())
    tracked = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                             capture_output=True, text=True).stdout.split("\n")
    messages, sources = [], []
    for name in filter(None, tracked):
        path = ROOT / name
        if not path.is_file() or name.startswith("tests/data/") or path.stat().st_size > 1 << 20:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        messages += [f"{name}: {message}" for message in check_any(text)]
        if re.search(r"\.(h|cpp)$", name):
            sources.append(path)
            if name.startswith(("src/quire/", "apps/")):
                messages += [f"{name}: {message}" for message in check_source(name.removeprefix("src/quire/"), text, modules)]
    return messages, sources


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", help="a build folder, to compare tests on disk with tests registered")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        messages = self_test()
    else:
        messages, sources = check_tree()
        if args.build:
            messages += check_registered(args.build, sources)
    print("\n".join(messages), file=sys.stderr, end="\n" if messages else "")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
