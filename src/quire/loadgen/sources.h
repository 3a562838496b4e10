#pragma once
// Request sources over other sources: at other times, or without what is too long. Each owns the one it reads from.

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "quire/base/rng.h"
#include "quire/workload/arrivals.h"
#include "quire/workload/request_spec.h"

namespace quire::loadgen {

/// Requests of a list that it owns.
class OwnedSource final : public RequestSource {
 public:
  explicit OwnedSource(std::vector<RequestSpec> requests) : requests_(std::move(requests)), list_(requests_) {}
  std::optional<RequestSpec> next() override { return list_.next(); }

 private:
  std::vector<RequestSpec> requests_;
  ListSource list_;
};

/// Arrivals from a process instead of its own.
class RetimedSource final : public RequestSource {
 public:
  RetimedSource(std::unique_ptr<RequestSource> inner, ArrivalProcess arrivals, std::uint64_t seed)
      : inner_(std::move(inner)), arrivals_(arrivals), rng_(seed) {}
  std::optional<RequestSpec> next() override {
    auto spec = inner_->next();
    if (spec) spec->arrival_ns = arrivals_.next_ns(rng_);
    return spec;
  }

 private:
  std::unique_ptr<RequestSource> inner_;
  ArrivalProcess arrivals_;
  Rng rng_;
};

/// `speed` times as fast; speed > 0.
class FasterSource final : public RequestSource {
 public:
  FasterSource(std::unique_ptr<RequestSource> inner, double speed) : inner_(std::move(inner)), speed_(speed) {}
  std::optional<RequestSpec> next() override {
    auto spec = inner_->next();
    if (spec) spec->arrival_ns = static_cast<std::uint64_t>(static_cast<double>(spec->arrival_ns) / speed_);
    return spec;
  }

 private:
  std::unique_ptr<RequestSource> inner_;
  double speed_;
};

/// Without requests whose prompt and answer are longer than max_total together.
class ShortEnoughSource final : public RequestSource {
 public:
  ShortEnoughSource(std::unique_ptr<RequestSource> inner, std::int64_t max_total)
      : inner_(std::move(inner)), max_total_(max_total) {}
  std::optional<RequestSpec> next() override {
    while (auto spec = inner_->next()) {
      if (std::int64_t{spec->prompt_tokens} + spec->output_tokens <= max_total_) return spec;
      ++num_left_out_;
    }
    return std::nullopt;
  }
  std::uint64_t num_left_out() const { return num_left_out_; }

 private:
  std::unique_ptr<RequestSource> inner_;
  std::int64_t max_total_;
  std::uint64_t num_left_out_ = 0;
};

}  // namespace quire::loadgen
