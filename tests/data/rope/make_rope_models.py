"""Makes the files beside it: tiny random models with each kind of RoPE scaling, and their logits by transformers.

  python make_rope_models.py OUT_DIR          needs (PyPI): torch, transformers (4.43 or later), gguf, numpy

All models share their weights (one layer, hidden 32, 2 heads of 16 with 1 KV head, float32) and differ in RoPE alone.
NAME.gguf is the model, NAME.json {"tokens": [160], "rows": [...], "logits": [[64] per row]} in float32, eager attention.
The original context is 64 tokens, so that most rows lie beyond it.
"""
import json
import math
import sys

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

HIDDEN, HEADS, KV_HEADS, FFN, VOCAB, ORIGINAL, LENGTH = 32, 2, 1, 48, 64, 64, 160
ROWS = list(range(7, LENGTH, 19))
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": ORIGINAL}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL}
MODELS = {
    "llama_plain": ("llama", None),
    "llama_linear": ("llama", {"rope_type": "linear", "factor": 4.0}),
    "llama_yarn": ("llama", YARN),
    "llama_yarn_betas": ("llama", {**YARN, "beta_fast": 16.0, "beta_slow": 2.0}),
    "llama_llama3": ("llama", LLAMA3),
    "qwen2_yarn": ("qwen2", YARN),
}
torch.set_grad_enabled(False)


def build(family, scaling):
    config_class, model_class = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM)}[family]
    config = config_class(
        vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=1, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, max_position_embeddings=ORIGINAL, rope_theta=100.0, rms_norm_eps=1e-5,
        rope_scaling=scaling, tie_word_embeddings=True, attn_implementation="eager")
    model = model_class(config).eval().float()
    generator = torch.Generator().manual_seed(7)
    for name, weight in model.named_parameters():
        values = torch.rand(weight.shape, generator=generator) * 2 - 1
        weight.copy_(values * 0.5 + 1 if "norm" in name else values * 0.4)
    return model


def interleaved(weight, heads):
    """GGUF files of the llama family hold q and k for pairs (2i, 2i + 1), transformers for (i, i + half)."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def llama3_factors(scaling, base, dim):
    """What a rope_freqs tensor divides the frequencies by."""
    low, high = (ORIGINAL / scaling[key] for key in ("low_freq_factor", "high_freq_factor"))
    factors = []
    for i in range(dim // 2):
        length = 2 * math.pi * base ** (2 * i / dim)
        smooth = (ORIGINAL / length - scaling["low_freq_factor"]) / (scaling["high_freq_factor"] - scaling["low_freq_factor"])
        between = 1 / ((1 - smooth) / scaling["factor"] + smooth)
        factors.append(1.0 if length < high else scaling["factor"] if length > low else between)
    return np.array(factors, np.float32)


def write(path, family, scaling, model):
    writer = gguf.GGUFWriter(path, family)
    writer.add_block_count(1)
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100.0)
    if scaling and scaling["rope_type"] in ("linear", "yarn"):
        writer.add_string(f"{family}.rope.scaling.type", scaling["rope_type"])
        writer.add_float32(f"{family}.rope.scaling.factor", scaling["factor"])
    if scaling and scaling["rope_type"] == "yarn":
        writer.add_uint32(f"{family}.rope.scaling.original_context_length", ORIGINAL)
    for key in ("beta_fast", "beta_slow"):
        if scaling and key in scaling:
            writer.add_float32(f"{family}.rope.scaling.yarn_{key}", scaling[key])
    if scaling and scaling["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(scaling, 100.0, HIDDEN // HEADS))
    weights = {name: value.numpy() for name, value in model.named_parameters()}
    layer = "model.layers.0."
    if family == "llama":
        for name, heads in (("q", HEADS), ("k", KV_HEADS)):
            key = f"{layer}self_attn.{name}_proj.weight"
            weights[key] = interleaved(weights[key], heads)
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", layer + "input_layernorm": "blk.0.attn_norm",
             layer + "post_attention_layernorm": "blk.0.ffn_norm", layer + "self_attn.o_proj": "blk.0.attn_output"}
    names |= {f"{layer}self_attn.{x}_proj": f"blk.0.attn_{x}" for x in "qkv"}
    names |= {f"{layer}mlp.{x}_proj": f"blk.0.ffn_{x}" for x in ("gate", "up", "down")}
    for name, value in weights.items():
        stem, kind = name.rsplit(".", 1)
        writer.add_tensor(f"{names[stem]}.{kind}", np.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


tokens = [int(t) for t in np.random.default_rng(3).integers(0, VOCAB, LENGTH)]
for name, (family, scaling) in MODELS.items():
    model = build(family, scaling)
    write(f"{sys.argv[1]}/{name}.gguf", family, scaling, model)
    logits = model(torch.tensor([tokens])).logits[0].numpy()
    rows = [[round(float(v), 6) for v in logits[row]] for row in ROWS]
    with open(f"{sys.argv[1]}/{name}.json", "w") as file:
        json.dump({"tokens": tokens, "rows": ROWS, "logits": rows}, file, separators=(",", ":"))
    print(name, float(np.abs(logits).max()))
