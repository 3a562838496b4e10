#!/usr/bin/env python3
"""Breaks the code on purpose, one place at a time, and checks that the tests notice.

Each file tests/mutations/NAME.txt is one mutation:

    what it removes, in one line
    file: src/quire/kv/block_pool.cpp
    tests: quire_kv_test quire_core_test
    filter: -ShadowKv.Every*                   (optional: a GoogleTest filter for the first round)
    <<<<
    the lines to replace, exactly as they stand in the file, once
    ====
    what stands there instead
    >>>>

The code is copied to build/mutate/source, so that nothing happens to the working tree. A mutation that no test notices
is reported and makes the exit status 1. --check only looks whether every mutation still applies.
"""

import argparse
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FORM = re.compile(
    r"\A(?P<what>[^\n]+)\nfile: (?P<file>\S+)\ntests: (?P<tests>[^\n]+)\n(?:filter: (?P<filter>\S+)\n)?"
    r"<<<<\n(?P<before>.*?)====\n(?P<after>.*?)>>>>\n\Z",
    re.DOTALL,
)


def read_mutations(names):
    mutations = []
    for path in sorted((ROOT / "tests/mutations").glob("*.txt")):
        if names and path.stem not in names:
            continue
        match = FORM.match(path.read_text())
        if not match:
            sys.exit(f"mutate: {path} does not have the form that tools/mutate.py describes")
        mutation = match.groupdict()
        mutation["name"] = path.stem
        mutation["tests"] = mutation["tests"].split()
        mutations.append(mutation)
    missing = set(names) - {m["name"] for m in mutations}
    if missing:
        sys.exit(f"mutate: no mutation {', '.join(sorted(missing))} in tests/mutations")
    return mutations


def mutated(mutation, root):
    """The text of the file with the mutation in it; an error if its lines are not there exactly once."""
    text = (root / mutation["file"]).read_text()
    count = text.count(mutation["before"])
    if count != 1:
        sys.exit(f"mutate: {mutation['name']}: its lines are {count} times in {mutation['file']}, wanted once")
    return text.replace(mutation["before"], mutation["after"])


def copy_source(to):
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()
    wanted = set(files)
    for old in list(to.rglob("*")) if to.exists() else []:
        if old.is_file() and str(old.relative_to(to)) not in wanted:
            old.unlink()
    for name in files:
        source, target = ROOT / name, to / name
        if not source.is_file():
            continue
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def limit():
    """A broken program may write or allocate without end."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 20, 256 << 20))
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))


def run(command, timeout, **more):
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, **more)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = 124
        size = output.seek(0, 2)
        output.seek(max(0, size - (1 << 16)))
        return status, output.read()


def is_noticed(build, mutation, jobs):
    """The first test program that fails, with its last words; None if all pass."""
    status, output = run(["cmake", "--build", str(build), "-j", str(jobs), "--target", *mutation["tests"]], 3600)
    if status != 0:
        sys.exit(f"mutate: {mutation['name']} does not compile:\n{output[-3000:]}")
    for test in mutation["tests"]:
        command = [str(build / test), "--gtest_brief=1", "--gtest_fail_fast=1"]
        if mutation["filter"]:
            command.append(f"--gtest_filter={mutation['filter']}")
        status, output = run(command, 600, cwd=build, preexec_fn=limit)
        if status != 0:
            failed = re.findall(r"\[  FAILED  \] (\S+)", output) or re.findall(r"bug: [^\n]*", output)
            return f"{test}: {failed[0] if failed else f'exit status {status}'}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="mutations of tests/mutations; none: all")
    parser.add_argument("--build", default=str(ROOT / "build"), help="where build/mutate goes")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--check", action="store_true", help="only look whether every mutation applies")
    options = parser.parse_args()
    mutations = read_mutations(options.names)
    for mutation in mutations:
        mutated(mutation, ROOT)
    if options.check:
        print(f"{len(mutations)} mutations apply")
        return 0

    source = pathlib.Path(options.build) / "mutate/source"
    build = pathlib.Path(options.build) / "mutate/build"
    copy_source(source)
    configure = ["cmake", "-S", str(source), "-B", str(build), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    unnoticed = []
    for number, mutation in enumerate(mutations, 1):
        started = time.monotonic()
        target = source / mutation["file"]
        original = target.read_text()
        target.write_text(mutated(mutation, source))
        try:
            noticed = is_noticed(build, mutation, options.jobs)
        finally:
            target.write_text(original)
        if noticed is None:
            unnoticed.append(mutation["name"])
        verdict = noticed or "NOBODY NOTICED"
        print(f"{number:3}/{len(mutations)}  {mutation['name']:44} {time.monotonic() - started:5.0f} s  {verdict}", flush=True)
    print(f"{len(mutations) - len(unnoticed)} of {len(mutations)} mutations were noticed")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
