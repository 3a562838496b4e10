#!/usr/bin/env python3
"""Compares files written by `quire quantize` with what the PyPI package `gguf` reads in them.

  quantize_check.py --build BUILD

A model with keys of every type and matrices of several widths goes to every format; SmolLM2 goes to Q8_0 if the folder of
models has it. Checked: all keys but general.file_type and general.quantization_version are as they were; names and
shapes too; the values that the package decodes are Quire's own, bit for bit; the errors in the report are right; and no
format that the package can write has a larger error than in its own encoding. Exits 1 and names what differs.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

FORMATS = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
CHANGED = {"general.file_type", "general.quantization_version"}
FALLBACK = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}


def write_model(path, rng):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("k.u8", 200), writer.add_int8("k.i8", -5), writer.add_uint16("k.u16", 65535), writer.add_int16("k.i16", -300)
    writer.add_uint32("k.u32", 4000000000), writer.add_int32("k.i32", -7), writer.add_float32("k.f32", 0.1), writer.add_bool("k.bool", True)
    writer.add_uint64("k.u64", 2**63 + 1), writer.add_int64("k.i64", -2**62), writer.add_float64("k.f64", 1e300)
    writer.add_string("k.string", "h\u00e9 \U0001f600\n"), writer.add_array("k.strings", ["", "a", "b" * 300])
    writer.add_array("k.ints", [1, -2, 3]), writer.add_array("k.floats", [0.5, -1.25]), writer.add_array("k.bools", [True, False])
    writer.add_file_type(0)
    writer.add_tensor("wide.weight", rng.standard_t(4, (40, 1024)).astype(np.float32) * 0.02)
    writer.add_tensor("middle.weight", rng.normal(0.01, 0.03, (17, 288)).astype(np.float32))
    writer.add_tensor("norm.weight", rng.normal(1, 0.2, 288).astype(np.float32))
    writer.add_tensor("cube.weight", rng.normal(0, 1, (3, 5, 256)).astype(np.float32))
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()


def field_value(field):
    """Types and bytes of a key, whatever its type."""
    return [int(t) for t in field.types], [part.tobytes() for part in field.parts]


def values_of(tensor):
    if tensor.tensor_type.name == "F32":
        return tensor.data.astype(np.float32).reshape(-1)
    return dequantize(tensor.data, tensor.tensor_type).astype(np.float32).reshape(-1)


def own_values(build, tensor):
    done = subprocess.run([build / "dequantize_tool", tensor.tensor_type.name], input=tensor.data.tobytes(), stdout=subprocess.PIPE, check=True)
    return np.frombuffer(done.stdout, np.float32)


def wanted_format(name, tensor):
    if len(tensor.shape) < 2:
        return "F32"
    cols = int(tensor.shape[0])
    if cols % gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][0] == 0:
        return name
    return FALLBACK.get(name, "F16") if cols % 32 == 0 else "F16"


def rms(values):
    return float(np.sqrt(np.mean(np.square(values.astype(np.float64)))))


def compare_keys(before, after):
    keys = [key for key in before.fields if not key.startswith("GGUF.")]
    for key in keys:
        if key not in CHANGED:
            yield field_value(before.fields[key]) == field_value(after.fields[key]), f"key {key} changed"
    order = [key for key in after.fields if key in keys]
    yield order == keys, "keys changed their order"
    extra = {key for key in after.fields if not key.startswith("GGUF.")} - set(keys)
    yield extra <= CHANGED, f"new keys {sorted(extra)}"


def compare_tensors(build, name, before, after, report):
    yield len(before.tensors) == len(after.tensors) == len(report["tensors"]), "numbers of tensors"
    for old, new, told in zip(before.tensors, after.tensors, report["tensors"]):
        where = f"{name} {new.name}"
        yield old.name == new.name == told["name"] and list(old.shape) == list(new.shape) == told["shape"], f"{where}: name or shape"
        yield new.tensor_type.name == told["to"] == wanted_format(name, old), f"{where}: found {new.tensor_type.name}"
        x, y = values_of(old), values_of(new)
        yield np.array_equal(y.view(np.uint32), own_values(build, new).view(np.uint32)), f"{where}: decoded differently"
        error = rms(y.astype(np.float64) - x)
        yield abs(error - told["rmse"]) <= 1e-9 + 1e-6 * error, f"{where}: rmse {told['rmse']}, computed {error}"
        if old.tensor_type == new.tensor_type or told["to"] in ("F32", "F16", "BF16", "Q4_K", "Q5_K", "Q6_K"):
            continue
        theirs = dequantize(quantize(x.reshape(-1, int(old.shape[0])), new.tensor_type), new.tensor_type).reshape(-1)
        limit = rms(theirs.astype(np.float64) - x)
        yield error <= limit * 1.001, f"{where}: rmse {error}, the package's own encoding has {limit}"


def check(build, source, name, folder):
    output = folder / f"{name}.gguf"
    done = subprocess.run([build / "quire", "quantize", source, output, "--to", name, "--json"], stdout=subprocess.PIPE, check=True)
    before, after, report = gguf.GGUFReader(source), gguf.GGUFReader(output), json.loads(done.stdout)
    yield report["bytes_after"] == output.stat().st_size, f"{name}: bytes_after"
    yield from compare_keys(before, after)
    yield from compare_tensors(build, name, before, after, report)
    wide = report["tensors"][0]
    print(f"{source.name} -> {name}: {wide['name']} rmse/rms {wide['rmse'] / wide['rms']:.4%}")
    output.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="the build folder, which holds quire and dequantize_tool")
    args = parser.parse_args()
    build = args.build.resolve()
    models = Path(os.environ.get("QUIRE_MODELS") or Path.home() / ".cache/quire/models")
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "model.gguf"
        write_model(model, np.random.default_rng(1))
        jobs = [(model, name) for name in FORMATS] + [(path, "Q8_0") for path in models.glob("SmolLM2*Q4_1.gguf")]
        for source, name in jobs:
            for holds, message in check(build, source, name, folder):
                if not holds:
                    failed = True
                    print(f"{source.name} -> {name}: {message}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
