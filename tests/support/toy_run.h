#pragma once
// A small made-up server as run events: for tests and pictures of pages, where only the shape of the data counts.
// Paged memory, prefill in chunks, the latest request preempted and computed again when blocks run out.

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quire/base/rng.h"
#include "quire/html/events.h"

namespace quire::test {

struct ToyOptions {
  std::uint64_t num_requests = 60, seed = 42;
  std::uint32_t num_blocks = 96;
  std::uint64_t mean_gap_ns = 12'000'000;
};

class ToyRun {
 public:
  explicit ToyRun(const ToyOptions& options) : options_(options), rng_(options.seed), held_(options.num_blocks) {
    run_.header = {.version = "0.1.0",
                   .command = "sample_page",
                   .seed = options.seed,
                   .total_slots = kBlockSize * options.num_blocks,
                   .block_size = kBlockSize,
                   .max_step_tokens = kBudget,
                   .options = {{"requests", std::to_string(options.num_requests)}}};
    std::uint64_t ns = 0;
    for (std::uint64_t i = 0; i < options.num_requests; ++i) {
      const auto prompt = static_cast<std::uint64_t>(rng_.between(20, 400));
      arrivals_.push_back({.id = i + 1, .arrival_ns = ns, .prompt = prompt, .target = prompt + output_length()});
      ns += static_cast<std::uint64_t>(rng_.between(0, 2 * static_cast<std::int64_t>(options.mean_gap_ns)));
    }
  }

  html::RunEvents take() {
    while (!arrivals_.empty() || !waiting_.empty() || !running_.empty()) step();
    for (std::uint32_t block = 0; block < held_.size(); ++block) release(block);
    return std::move(run_);
  }

 private:
  static constexpr std::uint64_t kBlockSize = 16, kBudget = 256;
  using Kind = html::RequestEventKind;

  struct Request {
    std::uint64_t id = 0, arrival_ns = 0, prompt = 0, target = 0;
    std::uint64_t computed = 0, generated = 0, restored_from_ns = 0;
    bool was_preempted = false;
    std::vector<std::uint32_t> blocks = {};
  };
  struct Holder {
    std::uint64_t owner = 0, since_ns = 0;
    bool is_cached = false;
  };

  std::uint64_t output_length() { return static_cast<std::uint64_t>(rng_.between(10, 160)); }

  void tell(Kind kind, const Request& request, std::uint64_t ns, std::uint64_t tokens = 0) {
    run_.requests.push_back(
        {.kind = kind, .request = {request.id}, .ns = ns, .end_ns = 0, .tokens = tokens, .detail = {}});
  }
  /// Ends what is known of the block, and begins what it is now.
  void change(std::uint32_t block, const Holder& now) {
    const Holder before = std::exchange(held_[block], now);
    if (before.owner == 0 || before.since_ns == now_) return;
    const auto state = before.is_cached ? html::BlockState::cached : html::BlockState::used;
    run_.blocks.push_back({block, state, before.since_ns, now_, before.owner});
  }
  void release(std::uint32_t block) { change(block, {}); }
  void release_all(Request& request) {
    for (const std::uint32_t block : request.blocks) release(block);
    request.blocks.clear();
  }
  /// Never used ones first, then the one that has been cached for longest.
  std::optional<std::uint32_t> free_block() const {
    std::optional<std::uint32_t> oldest;
    for (std::uint32_t block = 0; block < held_.size(); ++block) {
      if (held_[block].owner == 0) return block;
      if (held_[block].is_cached && (!oldest || held_[block].since_ns < held_[*oldest].since_ns)) oldest = block;
    }
    return oldest;
  }
  bool grow(Request& request, std::uint64_t tokens) {
    while (request.blocks.size() * kBlockSize < tokens) {
      const auto block = free_block();
      if (!block) return false;
      change(*block, {request.id, now_});
      request.blocks.push_back(*block);
    }
    return true;
  }
  void preempt_latest() {
    Request victim = std::move(running_.back());
    running_.pop_back();
    release_all(victim);
    tell(Kind::preempted, victim, now_);
    run_.requests.back().detail = "recompute";
    victim.computed = 0;
    victim.was_preempted = true;
    waiting_.push_front(std::move(victim));
  }

  void admit() {
    while (!arrivals_.empty() && arrivals_.front().arrival_ns <= now_) {
      tell(Kind::queued, arrivals_.front(), arrivals_.front().arrival_ns, arrivals_.front().prompt);
      waiting_.push_back(arrivals_.front());
      arrivals_.pop_front();
    }
    while (!waiting_.empty() && running_.size() < 24) {
      Request& head = waiting_.front();
      if (!grow(head, head.prompt + head.generated)) {
        release_all(head);
        return;
      }
      if (!head.was_preempted) tell(Kind::started, head, now_);
      head.restored_from_ns = now_;
      running_.push_back(std::move(head));
      waiting_.pop_front();
    }
  }

  void compute_chunk(Request& request, std::uint64_t& budget, std::uint64_t end_ns) {
    const std::uint64_t wanted = request.prompt + request.generated;
    const std::uint64_t chunk = std::min(budget, wanted - request.computed);
    if (chunk == 0) return;
    budget -= chunk;
    request.computed += chunk;
    if (!request.was_preempted) {
      tell(Kind::chunk, request, now_, chunk);
      run_.requests.back().end_ns = end_ns;
    }
    if (request.computed < wanted) return;
    if (request.was_preempted) {
      tell(Kind::restored, request, request.restored_from_ns);
      run_.requests.back().end_ns = end_ns;
    }
    if (++request.generated == 1) tell(Kind::first_token, request, end_ns);
  }

  void step() {
    now_ = std::max(now_, running_.empty() && waiting_.empty() ? arrivals_.front().arrival_ns : now_);
    admit();
    std::uint64_t decodes = 0;
    for (std::size_t i = 0; i < running_.size(); ++i) {
      while (i < running_.size() && !grow(running_[i], running_[i].prompt + running_[i].generated + 1))
        preempt_latest();
    }
    for (const Request& request : running_) decodes += request.computed == request.prompt + request.generated - 1;
    std::uint64_t budget = kBudget - decodes, prefill = 0;
    for (const Request& request : running_) {
      const std::uint64_t left = request.prompt + request.generated - request.computed;
      prefill += left > 1 ? left : 0;
    }
    prefill = std::min(prefill, budget);
    const std::uint64_t end_ns = now_ + 4'000'000 + 40'000 * (decodes + prefill);
    html::StepEvent step{.begin_ns = now_, .end_ns = end_ns, .prefill_tokens = prefill, .decode_tokens = decodes};
    step.running = running_.size();
    step.waiting = waiting_.size();
    for (Request& request : running_) {
      if (request.generated > 0 && request.computed + 1 == request.prompt + request.generated) {
        ++request.computed;
        ++request.generated;
      } else {
        compute_chunk(request, budget, end_ns);
      }
      step.slots.written += request.computed;
      step.slots.unused += request.blocks.size() * kBlockSize - request.computed;
    }
    for (const Holder& holder : held_) step.slots.cached += holder.is_cached ? kBlockSize : 0;
    run_.steps.push_back(step);
    now_ = end_ns;
    finish_done();
  }

  void finish_done() {
    std::vector<Request> going_on;
    for (Request& request : running_) {
      if (request.generated == 0 || request.prompt + request.generated < request.target) {
        going_on.push_back(std::move(request));
        continue;
      }
      for (const std::uint32_t block : request.blocks) change(block, {request.id, now_, true});
      tell(Kind::finished, request, now_, request.generated);
      run_.requests.back().detail = "length";
    }
    running_ = std::move(going_on);
  }

  ToyOptions options_;
  Rng rng_;
  html::RunEvents run_;
  std::uint64_t now_ = 0;
  std::deque<Request> arrivals_, waiting_;
  std::vector<Request> running_;
  std::vector<Holder> held_;
};

}  // namespace quire::test
