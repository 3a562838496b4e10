#include "quire/planning/served_run.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "quire/base/cat.h"
#include "quire/base/rng.h"

namespace quire::planning {
namespace {

using Clock = std::chrono::steady_clock;

/// What the callbacks write, on the engine's thread; they may outlive serve() if it fails.
struct Arrivals {
  std::mutex mutex;
  std::condition_variable done;
  std::vector<std::vector<std::uint64_t>> token_ns;
  std::vector<std::uint64_t> submit_ns, finish_ns;
  std::size_t num_open = 0;
  std::string fault;

  void note(std::size_t index, const engine::Delta& delta, std::uint64_t now_ns) {
    const std::lock_guard lock(mutex);
    token_ns[index].insert(token_ns[index].end(), delta.tokens.size(), now_ns);
    if (!delta.finish) return;
    finish_ns[index] = now_ns;
    if (delta.finish->reason != engine::FinishReason::length && fault.empty())
      fault = cat("request ", index + 1, " ended before its length: ", delta.finish->message);
    if (--num_open == 0) done.notify_all();
  }
};

engine::GenerateRequest make_request(const RequestSpec& spec, std::uint64_t index, std::int64_t vocab_size) {
  engine::GenerateRequest request;
  request.prompt = prompt_of(spec, index, vocab_size);
  request.max_tokens = spec.output_tokens;
  request.ignore_eos = true;
  request.sampling.temperature = 0;
  return request;
}

ServedRun summarize(Arrivals& arrivals) {
  ServedRun run;
  for (std::size_t i = 0; i < arrivals.submit_ns.size(); ++i) {
    const std::vector<std::uint64_t>& tokens = arrivals.token_ns[i];
    const std::uint64_t arrival = arrivals.submit_ns[i];
    ++run.num_finished;
    run.output_tokens += tokens.size();
    run.ttft_ns.add(tokens.front() - arrival);
    for (std::size_t t = 1; t < tokens.size(); ++t) run.inter_token_ns.add(tokens[t] - tokens[t - 1]);
    run.end_to_end_ns.add(arrivals.finish_ns[i] - arrival);
    run.end_ns = std::max(run.end_ns, arrivals.finish_ns[i]);
  }
  run.token_ns = std::move(arrivals.token_ns);
  return run;
}

}  // namespace

std::vector<TokenId> prompt_of(const RequestSpec& spec, std::uint64_t index, std::int64_t vocab_size) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(spec.prompt_tokens));
  const auto block = static_cast<std::size_t>(spec.prefix_block_tokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool is_named = block > 0 && i / block < spec.prefix_blocks.size();
    const std::uint64_t seed = is_named ? spec.prefix_blocks[i / block] : ~index;
    tokens[i].value = static_cast<std::int32_t>(random_at(seed, i) % static_cast<std::uint64_t>(vocab_size));
  }
  return tokens;
}

Result<ServedRun> serve(engine::Engine& engine, const std::vector<RequestSpec>& requests) {
  std::vector<engine::GenerateRequest> prepared;
  for (std::size_t i = 0; i < requests.size(); ++i)
    prepared.push_back(make_request(requests[i], i, engine.info().vocab_size));
  const auto arrivals = std::make_shared<Arrivals>();
  arrivals->token_ns.resize(requests.size());
  arrivals->submit_ns.resize(requests.size());
  arrivals->finish_ns.resize(requests.size());
  arrivals->num_open = requests.size();
  const auto start = Clock::now();
  const auto now_ns = [start] {
    return static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count());
  };
  for (std::size_t i = 0; i < requests.size(); ++i) {
    std::this_thread::sleep_until(start + std::chrono::nanoseconds(requests[i].arrival_ns));
    arrivals->submit_ns[i] = now_ns();  // its client has no part in how late this thread wakes up
    const auto submitted = engine.submit(std::move(prepared[i]), [arrivals, now_ns, i](const engine::Delta& delta) {
      arrivals->note(i, delta, now_ns());
    });
    if (!submitted.id) return fail("request ", i + 1, " was refused: ", submitted.refusal.message);
  }
  std::unique_lock lock(arrivals->mutex);
  arrivals->done.wait(lock, [&] { return arrivals->num_open == 0; });
  if (!arrivals->fault.empty()) return fail(arrivals->fault);
  return summarize(*arrivals);
}

}  // namespace quire::planning
