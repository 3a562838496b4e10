#include "quire/workload/synthetic.h"

namespace quire {
namespace {

constexpr std::uint64_t kArrivalStream = 1, kLengthStream = 2;

/// The common prefix is named block by block of this many tokens; what is left of it is named no more.
constexpr std::int32_t kPrefixBlockTokens = 16;

}  // namespace

SyntheticSource::SyntheticSource(const Options& options, ArrivalProcess arrivals, const LengthSampler& lengths)
    : options_(options),
      arrivals_(arrivals),
      lengths_(lengths),
      arrival_rng_(random_at(options.seed, kArrivalStream)),
      length_rng_(random_at(options.seed, kLengthStream)) {}

std::optional<std::uint64_t> SyntheticSource::num_requests() const {
  if (options_.end_ns != ~std::uint64_t{0}) return std::nullopt;
  return options_.num_requests;
}

std::optional<RequestSpec> SyntheticSource::next() {
  if (num_made_ == options_.num_requests) return std::nullopt;
  RequestSpec request;
  request.arrival_ns = arrivals_.next_ns(arrival_rng_);
  if (request.arrival_ns > options_.end_ns) return num_made_ = options_.num_requests, std::nullopt;
  ++num_made_;
  const LengthPair lengths = lengths_.sample(length_rng_);
  request.prompt_tokens = lengths.prompt_tokens + options_.shared_prefix_tokens;
  request.output_tokens = lengths.output_tokens;
  if (options_.shared_prefix_tokens == 0) return request;
  request.prefix_block_tokens = kPrefixBlockTokens;
  const std::int32_t num_blocks = (request.prompt_tokens + kPrefixBlockTokens - 1) / kPrefixBlockTokens;
  for (std::int32_t i = 0; i < num_blocks; ++i) {
    const bool is_common = (i + 1) * kPrefixBlockTokens <= options_.shared_prefix_tokens;
    request.prefix_blocks.push_back(is_common ? static_cast<std::uint64_t>(i + 1)
                                              : num_made_ << 32 | static_cast<std::uint64_t>(i + 1));
  }
  return request;
}

}  // namespace quire
