#include "quire/loadgen/request_writer.h"

#include <string_view>

#include "quire/base/rng.h"
#include "quire/json/json.h"

namespace quire::loadgen {
namespace {

// What a token is drawn for.
constexpr std::uint64_t kShared = 1, kNamed = 2, kOwn = 3;

constexpr std::string_view kWords[] = {
    "the",    "of",      "and",      "to",       "in",     "is",     "that",   "for",     "it",    "as",
    "was",    "with",    "be",       "by",       "on",     "not",    "he",     "this",    "are",   "or",
    "his",    "from",    "at",       "which",    "but",    "have",   "an",     "had",     "they",  "you",
    "were",   "their",   "one",      "all",      "we",     "can",    "her",    "has",     "there", "been",
    "if",     "more",    "when",     "will",     "would",  "who",    "so",     "no",      "time",  "year",
    "people", "way",     "day",      "man",      "thing",  "woman",  "life",   "child",   "world", "school",
    "state",  "family",  "group",    "country",  "hand",   "part",   "place",  "case",    "week",  "company",
    "system", "program", "question", "work",     "number", "night",  "point",  "home",    "water", "room",
    "mother", "area",    "money",    "story",    "fact",   "month",  "book",   "eye",     "job",   "word",
    "side",   "kind",    "head",     "house",    "friend", "father", "power",  "hour",    "game",  "line",
    "end",    "law",     "car",      "city",     "name",   "team",   "minute", "idea",    "body",  "back",
    "face",   "level",   "office",   "door",     "health", "art",    "war",    "history", "party", "result",
    "change", "morning", "reason",   "research", "girl",   "guy",    "moment", "air",     "force", "value"};

std::string as_text(const std::vector<std::uint64_t>& prompt) {
  std::string text;
  for (std::uint64_t bits : prompt) {
    if (!text.empty()) text += ' ';
    text += kWords[bits % std::size(kWords)];
  }
  return text;
}

}  // namespace

std::string RequestWriter::path() const {
  return options_.endpoint == Endpoint::chat ? "/v1/chat/completions" : "/v1/completions";
}

std::vector<std::uint64_t> RequestWriter::prompt(const RequestSpec& spec, std::uint64_t number) const {
  std::vector<std::uint64_t> out;
  out.reserve(static_cast<std::size_t>(prompt_tokens(spec)));
  const std::uint64_t shared = random_at(options_.seed, kShared);
  for (std::int32_t p = 0; p < options_.shared_prefix; ++p)
    out.push_back(random_at(shared, static_cast<std::uint64_t>(p)));
  const std::uint64_t own = random_at(options_.seed, kOwn, number);
  const std::uint64_t session = random_at(options_.seed, kNamed, spec.session);
  for (std::int32_t p = 0; p < spec.prompt_tokens; ++p) {
    const auto at = static_cast<std::uint64_t>(p);
    std::uint64_t key = own;
    if (spec.prefix_block_tokens > 0) {
      const auto block = static_cast<std::size_t>(p / spec.prefix_block_tokens);
      if (block < spec.prefix_blocks.size()) key = random_at(session, spec.prefix_blocks[block]);
    }
    out.push_back(random_at(key, at));
  }
  return out;
}

std::string RequestWriter::body(const RequestSpec& spec, std::uint64_t number) const {
  const auto tokens = prompt(spec, number);
  std::string out;
  json::Writer writer(out);
  writer.begin_object().field("model", options_.model);
  if (options_.endpoint == Endpoint::chat) {
    writer.key("messages").begin_array().begin_object().field("role", "user").field("content", as_text(tokens));
    writer.end_object().end_array();
  } else if (options_.prompt == PromptKind::text) {
    writer.field("prompt", as_text(tokens));
  } else {
    const auto num_ids = static_cast<std::uint64_t>(options_.last_token_id - options_.first_token_id) + 1;
    writer.key("prompt").begin_array();
    for (std::uint64_t bits : tokens) {
      writer.value(options_.first_token_id + static_cast<std::int64_t>(bits % num_ids));
    }
    writer.end_array();
  }
  writer.field("max_tokens", spec.output_tokens).field("temperature", options_.temperature).field("stream", true);
  writer.key("stream_options").begin_object().field("include_usage", true).end_object();
  if (options_.eos == Eos::ignore) writer.field("ignore_eos", true);
  writer.end_object();
  return out;
}

}  // namespace quire::loadgen
