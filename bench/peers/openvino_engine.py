"""OpenVINO GenAI's continuous batching, as bench/peers/closed_loop.py and engine_bench.py want an engine.

Reads a GGUF file itself; formats it does not know (Q5_0 among them) end in an error. Everything else is left at its
defaults, which are its fastest: weights as they are in the file, activations quantised on the fly, u8 KV cache.
"""
import numpy as np
import openvino
import openvino_genai


class Engine:
    name = "OpenVINO GenAI"
    version = openvino_genai.__version__.split("-")[0]

    def __init__(self, options):
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = options.cache_gib
        scheduler.max_num_batched_tokens = options.step_tokens
        scheduler.enable_prefix_caching = options.prefix_cache
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(
            options.model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": options.threads}, {})
        self.handles = {}

    def submit(self, number, prompt, max_tokens):
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = max_tokens
        config.ignore_eos = True
        config.do_sample = False
        tokens = openvino.Tensor(np.array([prompt], dtype=np.int64))
        self.handles[number] = self.pipeline.add_request(number, tokens, config)

    def step(self):
        self.pipeline.step()
        events = []
        for number, handle in list(self.handles.items()):
            tokens = sum(len(output.generated_ids) for output in handle.read().values()) if handle.can_read() else 0
            has_ended = handle.get_status() != openvino_genai.GenerationStatus.RUNNING
            if has_ended:
                del self.handles[number]
            if tokens or has_ended:
                events.append((number, tokens, has_ended))
        return events
