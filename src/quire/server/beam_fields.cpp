#include "quire/server/beam_fields.h"

#include <string>

#include "quire/base/cat.h"

namespace quire::server {
namespace {

using json::field_error;

Result<EarlyStopping> read_early_stopping(json::ObjectReader& reader) {
  const json::Value* value = reader.optional_value("early_stopping");
  if (!value) return EarlyStopping::when_no_better;
  if (auto truth = value->if_bool()) return *truth ? EarlyStopping::when_full : EarlyStopping::when_no_better;
  const std::string* text = value->if_string();
  if (text && *text == "never") return EarlyStopping::never;
  return json::wrong_kind("early_stopping", *value, "true, false or \"never\"");
}

/// The first field that asks for something which a search does not do.
Result<void> check_other_fields(const CommonFields& fields) {
  constexpr std::string_view kWhy = "not beside use_beam_search: a search takes the model's own probabilities";
  const sampling::SamplingParams& s = fields.generate.sampling;
  if (s.temperature != 0 && s.temperature != 1) return field_error("temperature", cat(kWhy, "; 0 or 1 is accepted"));
  if (s.top_p != 1) return field_error("top_p", kWhy);
  if (s.top_k != 0) return field_error("top_k", kWhy);
  if (s.min_p != 0) return field_error("min_p", kWhy);
  if (s.presence_penalty != 0) return field_error("presence_penalty", kWhy);
  if (s.frequency_penalty != 0) return field_error("frequency_penalty", kWhy);
  if (s.repetition_penalty != 1) return field_error("repetition_penalty", kWhy);
  if (!s.logit_bias.empty()) return field_error("logit_bias", kWhy);
  if (fields.stream) return field_error("stream", "not beside use_beam_search: what is best is known at the end only");
  return {};
}

Result<void> check_absent(json::ObjectReader& reader, const CommonFields& fields, std::optional<std::int64_t> best_of) {
  constexpr std::string_view kWhy = "only beside use_beam_search";
  if (best_of && *best_of != static_cast<std::int64_t>(fields.num_choices))
    return field_error("best_of", cat("found ", *best_of, ", wanted the same as 'n', ", fields.num_choices,
                                      ": every answer that is made is returned"));
  if (reader.optional_value("beam_width")) return field_error("beam_width", kWhy);
  QUIRE_TRY(auto length_penalty, reader.optional_number("length_penalty"));
  if (length_penalty.value_or(1) != 1) return field_error("length_penalty", kWhy);
  QUIRE_TRY(const EarlyStopping early_stopping, read_early_stopping(reader));
  if (early_stopping != EarlyStopping::when_no_better) return field_error("early_stopping", kWhy);
  return {};
}

}  // namespace

Result<void> read_beam_fields(json::ObjectReader& reader, CommonFields& fields) {
  QUIRE_TRY(auto best_of, reader.optional_int("best_of"));
  QUIRE_TRY(auto use, reader.optional_bool("use_beam_search"));
  if (!use.value_or(false)) return check_absent(reader, fields, best_of);
  QUIRE_TRY_VOID(check_other_fields(fields));

  const auto num_returned = static_cast<std::int64_t>(fields.num_choices);
  const json::IntRange widths{num_returned, kMaxBranches};
  QUIRE_TRY(auto beam_width, reader.optional_int("beam_width", widths));
  QUIRE_TRY(best_of, reader.optional_int("best_of", widths));
  if (beam_width && best_of && *beam_width != *best_of)
    return field_error("best_of", cat("found ", *best_of, "; differs from 'beam_width', ", *beam_width));
  QUIRE_TRY(auto length_penalty, reader.optional_number("length_penalty", {-kMaxLengthPenalty, kMaxLengthPenalty}));
  BeamParams& beams = fields.generate.beams.emplace();
  beams.num_returned = static_cast<std::int32_t>(num_returned);
  beams.width = static_cast<std::int32_t>(beam_width.value_or(best_of.value_or(num_returned)));
  beams.length_penalty = length_penalty.value_or(1);
  QUIRE_TRY(beams.early_stopping, read_early_stopping(reader));
  return {};
}

}  // namespace quire::server
