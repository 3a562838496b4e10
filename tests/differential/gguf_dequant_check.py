#!/usr/bin/env python3
"""Compares Quire's decoding of weight formats, bit for bit, with the PyPI package `gguf`.

  gguf_dequant_check.py --build BUILD [--blocks N] [--seed S]
  gguf_dequant_check.py --write DIR       writes the blocks and values that the unit test reads

Blocks are random bytes with finite scales: ordinary ones, zeros of both signs, subnormals and the largest. Each format
is decoded twice: as in the file, and through the packed matrix. Exits 1 and names the first difference if there is one.
"""
import argparse
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize

# Format -> where its f16 scales lie in a block.
SCALES = {
    "F32": [], "F16": [], "BF16": [], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}
EXTREME = np.array([0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00], dtype=np.uint16)


def finite_f16(rng, count):
    usual = rng.uniform(-0.02, 0.02, count).astype(np.float16).view(np.uint16)
    return np.where(rng.random(count) < 0.3, rng.choice(EXTREME, count), usual)


def random_blocks(name, rng, count):
    _, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    if not SCALES[name]:  # a block is one number, drawn among the finite ones
        kind = np.uint32 if block_bytes == 4 else np.uint16
        exponent = {"F32": 0x7F800000, "F16": 0x7C00, "BF16": 0x7F80}[name]
        values = rng.integers(0, 2 ** (8 * block_bytes), count, dtype=kind)
        return np.where(values & exponent == exponent, values & ~kind(exponent), values).view(np.uint8).reshape(count, -1)
    blocks = rng.integers(0, 256, (count, block_bytes), dtype=np.uint8)
    for place in SCALES[name]:
        blocks[:, place:place + 2] = finite_f16(rng, count).view(np.uint8).reshape(-1, 2)
    return blocks


def reference(name, blocks):
    kind = gguf.GGMLQuantizationType[name]
    if name in ("F32", "F16"):  # the package wants these typed
        blocks = blocks.view(np.float32 if name == "F32" else np.float16)
    return dequantize(blocks, kind).astype(np.float32).reshape(-1)


def differs(name, how, actual, expected):
    same = actual.view(np.uint32) == expected.view(np.uint32) if actual.size == expected.size else np.array([False])
    if same.all():
        return False
    at = int(np.argmin(same))
    print(f"{name} {how}: {(~same).sum()} of {same.size} values differ, first at {at}: "
          f"{actual[at]!r} instead of {expected[at]!r}")
    return True


def check(name, tool, rng, count):
    blocks = random_blocks(name, rng, count)
    expected = reference(name, blocks)
    failed = False
    for how in ([], ["--packed"]):
        done = subprocess.run([tool, name, *how], input=blocks.tobytes(), stdout=subprocess.PIPE, check=True)
        failed |= differs(name, how[0] if how else "file", np.frombuffer(done.stdout, np.float32), expected)
    print(f"{name}: {expected.size} values {'DIFFER' if failed else 'equal'}")
    return failed


def write(folder, rng):
    folder.mkdir(parents=True, exist_ok=True)
    for name in SCALES:
        blocks = random_blocks(name, rng, 64 if not SCALES[name] else 6)
        (folder / f"{name}.blocks").write_bytes(blocks.tobytes())
        (folder / f"{name}.values").write_bytes(reference(name, blocks).tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, help="the build folder, which holds dequantize_tool")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--blocks", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    if args.write:
        write(args.write, rng)
        return 0
    if not args.build:
        parser.error("wanted --build or --write")
    return 1 if any([check(name, args.build / "dequantize_tool", rng, args.blocks) for name in SCALES]) else 0


if __name__ == "__main__":
    sys.exit(main())
