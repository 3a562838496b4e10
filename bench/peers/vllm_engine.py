"""vLLM for CPU, as bench/peers/closed_loop.py and engine_bench.py want an engine.

vLLM reads no GGUF file on a CPU: the weights are dequantised once, into a directory of safetensors in the cache directory.
They are bfloat16 and the graph is compiled, which is what vLLM is made for; compiled code is kept for the next start. The
engine runs in a process of its own, since only so does vLLM set its threads up; Intel's OpenMP is preloaded (programs.py).
"""
import hashlib
import os
from pathlib import Path

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
import vllm
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.llm_engine import LLMEngine

import environments


def dequantised(path):
    """The directory with the weights of a GGUF file in bfloat16; made if it is not there."""
    path = Path(path).resolve()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    folder = environments.cache_directory() / "safetensors" / f"{path.stem}-{digest}"
    if not folder.exists():
        unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.bfloat16, quantization_config=transformers.GgufConfig(dequantize=True))
        model.save_pretrained(unfinished)
        unfinished.rename(folder)
    return str(folder)


class Engine:
    name = "vLLM for CPU"
    version = vllm.__version__

    def __init__(self, options):
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(options.cache_gib)
        self.engine = LLMEngine.from_engine_args(EngineArgs(
            model=dequantised(options.model), skip_tokenizer_init=True, dtype="bfloat16", max_model_len=4096,
            max_num_seqs=64, max_num_batched_tokens=options.step_tokens, enable_prefix_caching=options.prefix_cache))

    def submit(self, number, prompt, max_tokens):
        params = vllm.SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False,
                                     output_kind=RequestOutputKind.DELTA)
        self.engine.add_request(str(number), {"prompt_token_ids": prompt}, params)

    def step(self):
        return [(int(output.request_id), len(output.outputs[0].token_ids), output.finished) for output in self.engine.step()]
