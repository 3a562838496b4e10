#include "quire/server/generation.h"

#include <utility>

#include "quire/base/cat.h"
#include "quire/base/check.h"
#include "quire/json/json.h"

namespace quire::server {
namespace {

constexpr std::string_view kDone = "data: [DONE]\n\n";
constexpr std::string_view kFiller = ": keep-alive\n\n";

std::string quoted(std::string_view text) {
  std::string out;
  json::append_string(out, text);
  return out;
}

void append_ids(std::string& out, std::span<const TokenId> ids) {
  out += '[';
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    append_text(out, ids[i].value);
  }
  out += ']';
}

std::string_view finish_word(engine::FinishReason reason) {
  return reason == engine::FinishReason::length ? "length" : "stop";
}

ApiError error_of(const engine::Finish& finish) {
  if (finish.reason == engine::FinishReason::cancelled) {
    return {.status = 503, .message = "the server is shutting down", .code = "shutting_down"};
  }
  if (finish.reason == engine::FinishReason::timed_out) {
    return {.status = 503,
            .message = "the request waited in the queue for longer than the server allows",
            .code = "queue_timeout",
            .retry_after_seconds = 1};
  }
  return {.status = 500, .message = finish.message, .code = "generation_failed"};
}

}  // namespace

Generation::Generation(Call call, const Backend& backend, Exchange& exchange, metrics::ServerMetrics& metrics)
    : call_(std::move(call)),
      exchange_(exchange),
      metrics_(metrics),
      choices_(call_.prompts.size() * call_.choices_per_prompt) {
  QUIRE_CHECK(!call_.prompts.empty());
  chunk_head_ = "data: " + object_head(call_.kind == Call::Kind::chat ? "chat.completion.chunk" : "text_completion");
  if (!call_.logprobs) return;
  for (Choice& choice : choices_) {
    if (call_.kind == Call::Kind::chat) {
      choice.logprobs = ChatLogprobs(backend);
    } else {
      choice.logprobs = CompletionLogprobs(backend);
    }
  }
}

void Generation::start() {
  if (!call_.stream) return;
  HttpResponse head{.status = 200, .content_type = "text/event-stream; charset=utf-8"};
  head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  exchange_.start_stream(std::move(head), std::string(kFiller));
}

bool Generation::on_delta(std::size_t index, engine::Delta delta, Clock::time_point at) {
  Choice& choice = choices_[index];
  if (ended_ || choice.done) return ended_;
  choice.usage = delta.usage;
  add_scores(index, std::move(delta.scores));
  if (delta.finish && delta.finish->reason != engine::FinishReason::stop &&
      delta.finish->reason != engine::FinishReason::length) {
    fail(error_of(*delta.finish));
    return true;
  }
  std::string out;
  if (!choice.opened && (!delta.text.empty() || !delta.tokens.empty() || delta.finish)) open(index, out);
  take_tokens(choice, delta, at);
  if (!call_.stream) {
    choice.text += delta.text;
  } else if (!delta.text.empty() || (!delta.tokens.empty() && (call_.logprobs || call_.return_token_ids))) {
    append_text_chunk(out, index, delta.text, delta.tokens.size());
  }
  if (delta.finish) {
    choice.done = true;
    choice.finish = std::move(*delta.finish);
    metrics_.observe_request({.queue_ns = delta.timings.queue_ns,
                              .prefill_ns = delta.timings.prefill_ns,
                              .decode_ns = delta.timings.decode_ns,
                              .had_first_token = choice.has_token});
    ++num_done_;
    if (call_.stream) append_finish_chunk(out, index);
  }
  ended_ = num_done_ == choices_.size();
  if (ended_ && call_.stream) finish_stream(out);
  if (call_.stream && !out.empty()) exchange_.send(out);
  if (ended_) call_.stream ? exchange_.end_stream() : finish_whole();
  return ended_;
}

void Generation::fail(const ApiError& error) {
  if (std::exchange(ended_, true)) return;
  if (!call_.stream) return exchange_.respond(error_response(error));
  exchange_.send(cat("data: ", error_body(error), "\n\n", kDone));
  exchange_.end_stream();
}

/// What stands before the first text of a choice.
void Generation::open(std::size_t index, std::string& out) {
  Choice& choice = choices_[index];
  choice.opened = true;
  if (call_.stream && call_.kind == Call::Kind::chat) append_role_chunk(out, index);
  if (!call_.echo) return;
  if (call_.logprobs) add_prompt_logprobs(index);
  if (call_.stream) {
    append_text_chunk(out, index, prompt_of(index).echo_text, 0);
  } else {
    choice.text = prompt_of(index).echo_text;
  }
}

/// They come with the prompt's first choice and are those of all its choices.
void Generation::add_scores(std::size_t index, std::vector<engine::ScoreRow> scores) {
  for (std::size_t k = 0; k < call_.choices_per_prompt && !scores.empty(); ++k) {
    std::vector<engine::ScoreRow>& all = choices_[index + k].scores;
    all.insert(all.end(), scores.begin(), scores.end());
  }
}

void Generation::add_prompt_logprobs(std::size_t index) {
  Choice& choice = choices_[index];
  auto& logprobs = std::get<CompletionLogprobs>(choice.logprobs);
  const std::vector<TokenId>& prompt = prompt_of(index).ids;
  logprobs.add_prompt_token(prompt[0], std::nullopt, {});
  // Row p is the distribution after prompt[0..p], so it tells of prompt[p + 1].
  for (const engine::ScoreRow& row : choice.scores) {
    const std::size_t next = static_cast<std::size_t>(row.position) + 1;
    if (next < prompt.size() && row.next_logprob) logprobs.add_prompt_token(prompt[next], row.next_logprob, row.top);
  }
  choice.scores.clear();
}

void Generation::take_tokens(Choice& choice, const engine::Delta& delta, Clock::time_point at) {
  if (delta.tokens.empty()) return;
  if (choice.has_token) {
    const double gap = std::chrono::duration<double>(at - choice.last_token).count();
    const double tokens = static_cast<double>(delta.tokens.size());
    for (std::size_t i = 0; i < delta.tokens.size(); ++i) metrics_.observe_inter_token(gap / tokens);
  }
  choice.has_token = true;
  choice.last_token = at;
  for (const engine::OutputToken& token : delta.tokens) {
    if (auto* chat = std::get_if<ChatLogprobs>(&choice.logprobs)) chat->add(token);
    if (auto* completion = std::get_if<CompletionLogprobs>(&choice.logprobs)) completion->add(token);
    if (call_.return_token_ids) choice.token_ids.push_back(token.token);
  }
}

void Generation::finish_stream(std::string& out) {
  if (call_.include_usage) out += cat(chunk_head_, "\"choices\":[],\"usage\":", usage_json(), "}\n\n");
  out += kDone;
}

void Generation::finish_whole() {
  const bool chat = call_.kind == Call::Kind::chat;
  std::string body = object_head(chat ? "chat.completion" : "text_completion") + "\"choices\":[";
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    body += cat(i > 0 ? "," : "", "{\"index\":", i);
    body += chat ? cat(",\"message\":{\"role\":\"assistant\",\"content\":", quoted(choice.text), ",\"refusal\":null}")
                 : cat(",\"text\":", quoted(choice.text));
    body += cat(",\"logprobs\":", take_logprobs(choice), ",\"finish_reason\":\"", finish_word(choice.finish.reason),
                "\",\"stop_reason\":", stop_reason_json(choice.finish));
    if (choice.finish.score) json::append_double(body += ",\"beam_score\":", *choice.finish.score);
    if (call_.return_token_ids) {
      append_ids(body += ",\"token_ids\":", choice.token_ids);
      append_ids(body += ",\"prompt_token_ids\":", prompt_of(i).ids);
    }
    body += '}';
  }
  body += cat("],\"usage\":", usage_json(), "}");
  exchange_.respond({.status = 200, .body = std::move(body)});
}

std::string Generation::object_head(std::string_view object) const {
  return cat("{\"id\":", quoted(call_.id), ",\"object\":\"", object, "\",\"created\":", call_.created,
             ",\"model\":", quoted(call_.model), ",\"seed\":", call_.seed, ",");
}

/// `body`: the choice's own members after its index, with a leading comma.
void Generation::append_chunk(std::string& out, std::size_t index, std::string_view body,
                              std::string_view finish_reason) const {
  out += cat(chunk_head_, "\"choices\":[{\"index\":", index, body, ",\"finish_reason\":", finish_reason, "}]",
             call_.include_usage ? ",\"usage\":null" : "", "}\n\n");
}

void Generation::append_role_chunk(std::string& out, std::size_t index) const {
  append_chunk(out, index, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null", "null");
}

void Generation::append_text_chunk(std::string& out, std::size_t index, std::string_view text,
                                   std::size_t num_new_tokens) {
  Choice& choice = choices_[index];
  std::string body = call_.kind == Call::Kind::chat ? cat(",\"delta\":{\"content\":", quoted(text), "}")
                                                    : cat(",\"text\":", quoted(text));
  body += cat(",\"logprobs\":", take_logprobs(choice));
  if (call_.return_token_ids && num_new_tokens > 0) {
    append_ids(body += ",\"token_ids\":", std::span(choice.token_ids).last(num_new_tokens));
    choice.token_ids.clear();
  }
  append_chunk(out, index, body, "null");
}

void Generation::append_finish_chunk(std::string& out, std::size_t index) const {
  const engine::Finish& finish = choices_[index].finish;
  const std::string_view delta = call_.kind == Call::Kind::chat ? ",\"delta\":{}" : ",\"text\":\"\"";
  append_chunk(out, index, cat(delta, ",\"logprobs\":null,\"stop_reason\":", stop_reason_json(finish)),
               cat("\"", finish_word(finish.reason), "\""));
}

std::string Generation::take_logprobs(Choice& choice) const {
  if (auto* chat = std::get_if<ChatLogprobs>(&choice.logprobs)) return chat->take();
  if (auto* completion = std::get_if<CompletionLogprobs>(&choice.logprobs)) return completion->take();
  return "null";
}

std::string Generation::usage_json() const {
  std::int64_t prompt = 0, completion = 0, cached = 0;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const engine::Usage& usage = choices_[i].usage;
    completion += usage.completion_tokens;
    if (i % call_.choices_per_prompt != 0) continue;
    prompt += usage.prompt_tokens;
    cached += usage.cached_tokens;
  }
  return cat("{\"prompt_tokens\":", prompt, ",\"completion_tokens\":", completion,
             ",\"total_tokens\":", prompt + completion, ",\"prompt_tokens_details\":{\"cached_tokens\":", cached, "}}");
}

std::string Generation::stop_reason_json(const engine::Finish& finish) const {
  if (finish.stop_string) return quoted(*finish.stop_string);
  if (finish.stop_token) return cat(finish.stop_token->value);
  return "null";
}

}  // namespace quire::server
