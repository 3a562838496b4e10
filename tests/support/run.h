#pragma once
// Runs requests on an engine and collects their whole answers.

#include <condition_variable>
#include <mutex>
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

/// All requests arrive in the same step. Waits for their ends. The answers of each, by branch. A refusal is a bug of
/// the test.
inline std::vector<std::vector<Collected>> run_branches(engine::Engine& engine,
                                                        const std::vector<engine::GenerateRequest>& requests) {
  std::mutex mutex;
  std::condition_variable done;
  std::size_t left = requests.size();
  std::vector<std::vector<Collected>> answers(requests.size());
  std::vector<engine::Submission> submissions;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto& request = requests[i];
    answers[i].resize(static_cast<std::size_t>(request.beams ? request.beams->num_returned : request.num_branches));
    submissions.push_back({request, [&, i](engine::Delta delta) {
                             std::lock_guard lock(mutex);
                             Collected& answer = answers[i][static_cast<std::size_t>(delta.branch)];
                             answer.text += delta.text;
                             for (auto& token : delta.tokens) answer.tokens.push_back(std::move(token));
                             for (auto& row : delta.scores) answer.scores.push_back(std::move(row));
                             answer.usage = delta.usage;
                             if (!delta.finish) return;
                             answer.finish = *delta.finish;
                             ++answer.num_finishes;
                             if (delta.ends_request && --left == 0) done.notify_all();
                           }});
  }
  const auto submitted = engine.submit_all(std::move(submissions));
  QUIRE_CHECK(!submitted.ids.empty(), submitted.refusal.message);
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return left == 0; });
  return answers;
}

/// Of requests with one answer.
inline std::vector<Collected> run_all(engine::Engine& engine, const std::vector<engine::GenerateRequest>& requests) {
  std::vector<Collected> answers;
  for (auto& branches : run_branches(engine, requests)) answers.push_back(std::move(branches.front()));
  return answers;
}

inline Collected run_one(engine::Engine& engine, const engine::GenerateRequest& request) {
  return run_all(engine, {request})[0];
}

}  // namespace quire::test
