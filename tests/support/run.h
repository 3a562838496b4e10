#pragma once
// Runs requests on an engine and collects their whole answers.

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quire/base/check.h"
#include "quire/engine/engine.h"

namespace quire::test {

struct Collected {
  std::string text;
  std::vector<engine::OutputToken> tokens;
  std::vector<engine::ScoreRow> scores;
  engine::Finish finish;
  engine::Usage usage;
  int num_finishes = 0;

  std::vector<TokenId> ids() const {
    std::vector<TokenId> ids;
    for (const auto& token : tokens) ids.push_back(token.token);
    return ids;
  }
};

/// When requests arrive: some in the same step, each of the others with every so many deltas of the answers so far, and
/// when one of these ends. So the steps are the same however busy the machine is.
struct Arrivals {
  std::size_t num_at_once;
  int deltas_between = 1;
};

/// Submits requests and collects the answers of each, by branch. A refusal is a bug of the test.
class Run {
 public:
  Run(engine::Engine& engine, const std::vector<engine::GenerateRequest>& requests, Arrivals arrivals)
      : engine_(engine), requests_(requests), arrivals_(arrivals), answers_(requests.size()) {}

  std::vector<std::vector<Collected>> answers() {
    std::unique_lock lock(mutex_);
    submit(std::min(arrivals_.num_at_once, requests_.size()));
    done_.wait(lock, [&] { return num_ended_ == requests_.size(); });
    return std::move(answers_);
  }

 private:
  void submit(std::size_t count) {
    std::vector<engine::Submission> submissions;
    for (; count > 0 && next_ < requests_.size(); --count, ++next_) {
      const engine::GenerateRequest& request = requests_[next_];
      answers_[next_].resize(
          static_cast<std::size_t>(request.beams ? request.beams->num_returned : request.num_branches));
      submissions.push_back({request, [this, i = next_](engine::Delta delta) { take(i, std::move(delta)); }});
    }
    if (submissions.empty()) return;
    const auto submitted = engine_.submit_all(std::move(submissions));
    QUIRE_CHECK(!submitted.ids.empty(), submitted.refusal.message);
  }

  void take(std::size_t i, engine::Delta delta) {
    std::lock_guard lock(mutex_);
    Collected& answer = answers_[i][static_cast<std::size_t>(delta.branch)];
    answer.text += delta.text;
    for (auto& token : delta.tokens) answer.tokens.push_back(std::move(token));
    for (auto& row : delta.scores) answer.scores.push_back(std::move(row));
    answer.usage = delta.usage;
    if (delta.finish) {
      answer.finish = *delta.finish;
      ++answer.num_finishes;
    }
    if (++num_deltas_ % arrivals_.deltas_between == 0 || delta.ends_request) submit(1);
    num_ended_ += delta.ends_request;
    if (num_ended_ == requests_.size()) done_.notify_all();
  }

  engine::Engine& engine_;
  const std::vector<engine::GenerateRequest>& requests_;
  const Arrivals arrivals_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<std::vector<Collected>> answers_;
  std::size_t next_ = 0, num_ended_ = 0;
  int num_deltas_ = 0;
};

/// All requests arrive in the same step.
inline std::vector<std::vector<Collected>> run_branches(engine::Engine& engine,
                                                        const std::vector<engine::GenerateRequest>& requests) {
  return Run(engine, requests, {requests.size()}).answers();
}

/// Of requests with one answer.
inline std::vector<Collected> run_all(engine::Engine& engine, const std::vector<engine::GenerateRequest>& requests,
                                      std::optional<Arrivals> arrivals = {}) {
  std::vector<Collected> answers;
  for (auto& branches : Run(engine, requests, arrivals.value_or(Arrivals{requests.size()})).answers())
    answers.push_back(std::move(branches.front()));
  return answers;
}

inline Collected run_one(engine::Engine& engine, const engine::GenerateRequest& request) {
  return run_all(engine, {request})[0];
}

}  // namespace quire::test
