"""The closed loop of `quire bench serve` for an engine in this process: so many clients, each sends its next request when
the last one has ended. An engine has

    submit(number, prompt, max_tokens)    a request; greedy, exactly max_tokens tokens
    step()                                runs one step; a list of (number, how many new tokens, whether it has ended)

Figures have the names and definitions of src/quire/loadgen/summary.h. Needs nothing but Python.
"""
import json
import time
from dataclasses import dataclass, field


@dataclass
class Request:
    prompt: list
    max_tokens: int


@dataclass
class Sample:
    sent: float
    wanted: int
    times: list = field(default_factory=list)  # when tokens came; a time for each event, as a reader of a stream sees them
    tokens: int = 0


def read_requests(text):
    """From what `quire bench serve --requests-to` wrote: the JSON bodies of completion requests with token ids."""
    requests = []
    for number, line in enumerate(text.splitlines(), start=1):
        body = json.loads(line)
        prompt = body.get("prompt")
        if not isinstance(prompt, list) or not all(isinstance(token, int) for token in prompt):
            raise ValueError(f"line {number}: found no list of token ids in 'prompt'")
        requests.append(Request(prompt, body["max_tokens"]))
    return requests


def run(engine, requests, clients, now=time.perf_counter):
    """(samples in the order of the requests, seconds from the first request to the end of the last)"""
    begin = now()
    samples = []

    def send_next(time_s):
        if len(samples) < len(requests):
            request = requests[len(samples)]
            samples.append(Sample(time_s, request.max_tokens))
            engine.submit(len(samples) - 1, request.prompt, request.max_tokens)
            return 1
        return 0

    running = sum(send_next(begin) for _ in range(clients))
    end = begin
    while running > 0:
        events = engine.step()
        end = now()
        for number, tokens, has_ended in events:
            if tokens > 0:
                samples[number].times.append(end)
                samples[number].tokens += tokens
            if has_ended:
                running += send_next(end) - 1
    return samples, end - begin


def percentile(values, share):
    """Interpolated between the two nearest, as numpy does; 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def figures(samples, seconds):
    """Rows of the report that `quire bench serve --json` writes, as far as comparisons need them."""
    first = [(sample.times[0] - sample.sent) * 1e3 for sample in samples if sample.times]
    gaps = [(b - a) * 1e3 for sample in samples for a, b in zip(sample.times, sample.times[1:])]
    short = sum(sample.tokens < sample.wanted for sample in samples)
    rows = [("completed", "requests", len(samples)), ("failed", "requests", 0), ("short", "requests", short), ("duration", "s", seconds),
            ("output tokens/s", "tokens/s", sum(sample.tokens for sample in samples) / seconds if seconds else 0.0)]
    for name, values in (("ttft", first), ("gap", gaps)):
        for label, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
            rows.append((f"{name} {label}", "ms", percentile(values, share)))
    return [{"metric": metric, "value": value, "unit": unit} for metric, unit, value in rows]
