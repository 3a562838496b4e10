#pragma once
// Flight: a request in flight as the engine's thread sees it: one Answer for each branch, or for each beam to be
// returned, who gets the deltas, and when things happened. Beams that may still be chosen have their text followed
// (live), since a stop string ends them.

#include <chrono>
#include <cstdint>
#include <vector>

#include "quire/engine/answer.h"
#include "quire/engine/answer_text.h"
#include "quire/engine/engine.h"
#include "quire/sched/events.h"

namespace quire::engine {

class Flight {
 public:
  using Clock = std::chrono::steady_clock;

  /// `tokenizer` outlives it.
  Flight(RequestId id, const GenerateRequest& request, const Tokenizer& tokenizer, Engine::Callback callback,
         Clock::time_point submitted);

  void note_started(Clock::time_point at);
  /// Of the step at hand.
  void set_memory_refused(bool is_refused) { memory_refused_ = is_refused; }
  void note_timed_out() { timed_out_ = true; }
  bool has_started() const { return started_.has_value(); }
  /// Why one of its rows failed in the step at hand.
  std::string failure() const;
  void set_cached_tokens(std::int32_t count);
  void add_scores(std::vector<ScoreRow> rows) { answers_.front().add_scores(std::move(rows)); }

  /// True if the branch's text has come to a stop string: it is to be ended.
  bool add_token(std::int32_t branch, OutputToken token);
  /// The live beams whose text has come to a stop string, by rank: they are to be ended.
  std::vector<std::int32_t> advance_beams(const std::vector<BeamStep>& steps);
  void add_returned(const BeamReturned& beam);

  /// The branch's last delta. `message` if it failed or was cancelled.
  Delta end_branch(const BranchFinished& end, std::string message);
  /// True when all branches have ended.
  bool has_ended() const { return num_open_ == 0; }

  /// What branches have to deliver, appended to `out`.
  void take_deltas(std::vector<std::pair<Engine::Callback, Delta>>& out);
  const Engine::Callback& callback() const { return callback_; }
  std::int32_t num_branches() const { return static_cast<std::int32_t>(answers_.size()); }

 private:
  void note_token();
  Finish finish_of(const BranchFinished& end, std::string message) const;

  const Tokenizer& tokenizer_;
  Engine::Callback callback_;
  std::vector<Answer> answers_;
  std::vector<std::optional<double>> scores_;  ///< [answers_] of returned beams
  std::vector<AnswerText> beams_;              ///< live ones; empty where there are no stop strings
  std::int32_t num_open_;
  bool memory_refused_ = false;
  bool timed_out_ = false;  ///< cancelled by the engine, since it waited too long
  Clock::time_point submitted_;
  std::optional<Clock::time_point> started_, first_token_;
};

}  // namespace quire::engine
