#include "quire/engine/flight.h"

#include <utility>

#include "quire/text/tokenizer.h"

namespace quire::engine {
namespace {

std::uint64_t elapsed_ns(Flight::Clock::time_point from, Flight::Clock::time_point to) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count());
}

}  // namespace

Flight::Flight(RequestId id, const GenerateRequest& request, const Tokenizer& tokenizer, Engine::Callback callback,
               Clock::time_point submitted)
    : tokenizer_(tokenizer), callback_(std::move(callback)), submitted_(submitted) {
  num_open_ = request.beams ? request.beams->num_returned : request.num_branches;
  for (std::int32_t branch = 0; branch < num_open_; ++branch) answers_.emplace_back(id, branch, request, tokenizer);
  scores_.resize(answers_.size());
  if (request.beams && !request.stop.empty()) beams_.emplace_back(request, tokenizer);
}

void Flight::note_started(Clock::time_point at) {
  if (!started_) started_ = at;
}

void Flight::set_cached_tokens(std::int32_t count) {
  for (Answer& answer : answers_) answer.set_cached_tokens(count);
}

std::string Flight::failure() const {
  return memory_refused_ ? "the system refused a memory mapping for this request's KV; start with larger "
                           "--kv-page-group or fewer --kv-max-mappings"
                         : "the model gave a value that is not finite for this request";
}

void Flight::note_token() {
  if (!first_token_) first_token_ = Clock::now();
}

bool Flight::add_token(std::int32_t branch, OutputToken token) {
  note_token();
  return answers_[static_cast<std::size_t>(branch)].add(std::move(token));
}

std::vector<std::int32_t> Flight::advance_beams(const std::vector<BeamStep>& steps) {
  note_token();
  std::vector<std::int32_t> stopped;
  if (beams_.empty()) return stopped;
  std::vector<AnswerText> next;
  for (const BeamStep& step : steps) {
    next.push_back(beams_[static_cast<std::size_t>(step.parent)]);
    next.back().push(step.token);
    if (next.back().matched()) stopped.push_back(static_cast<std::int32_t>(next.size()) - 1);
  }
  beams_ = std::move(next);
  return stopped;
}

void Flight::add_returned(const BeamReturned& beam) {
  const auto index = static_cast<std::size_t>(beam.branch);
  scores_[index] = beam.score;
  for (TokenId token : beam.tokens) answers_[index].add({.token = token});
}

Finish Flight::finish_of(const BranchFinished& end, std::string message) const {
  Finish finish{.score = scores_[static_cast<std::size_t>(end.branch)]};
  switch (end.reason) {
    case quire::FinishReason::stop_token:
      if (!tokenizer_.is_end(end.stop_token)) finish.stop_token = end.stop_token;
      break;
    case quire::FinishReason::stopped_by_caller:
      break;
    case quire::FinishReason::length:
      finish.reason = FinishReason::length;
      break;
    case quire::FinishReason::cancelled:
      finish.reason = timed_out_ ? FinishReason::timed_out : FinishReason::cancelled;
      finish.message = std::move(message);
      break;
    case quire::FinishReason::failed:
      finish.reason = FinishReason::failed;
      finish.message = std::move(message);
      break;
  }
  return finish;
}

Delta Flight::end_branch(const BranchFinished& end, std::string message) {
  Answer& answer = answers_[static_cast<std::size_t>(end.branch)];
  answer.finish(finish_of(end, std::move(message)));
  Delta delta = answer.take_delta();
  const auto now = Clock::now();
  const auto started = started_.value_or(now);
  const auto first_token = first_token_.value_or(now);
  delta.timings = {elapsed_ns(submitted_, started), elapsed_ns(started, first_token), elapsed_ns(first_token, now)};
  delta.ends_request = --num_open_ == 0;
  return delta;
}

void Flight::take_deltas(std::vector<std::pair<Engine::Callback, Delta>>& out) {
  for (Answer& answer : answers_)
    if (answer.has_delta()) out.emplace_back(callback_, answer.take_delta());
}

}  // namespace quire::engine
