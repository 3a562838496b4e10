#include "quire/html/request_times.h"

#include <algorithm>
#include <map>

namespace quire::html {
namespace {

/// Spans as the events open and close them. A span without length is left out.
class PhaseList {
 public:
  /// What goes on from `ns` until the next change; nothing if it is empty.
  void change(std::optional<Phase> phase, std::uint64_t ns) {
    ns = std::max(ns, begin_ns_);
    if (phase_) span(*phase_, begin_ns_, ns);
    phase_ = phase;
    begin_ns_ = ns;
  }
  /// From `begin_ns` to `end_ns`, then `then`.
  void insert(Phase phase, std::uint64_t begin_ns, std::uint64_t end_ns, std::optional<Phase> then) {
    change(phase, begin_ns);
    change(then, end_ns);
  }
  std::vector<PhaseSpan> take() { return std::move(spans_); }

 private:
  void span(Phase phase, std::uint64_t begin_ns, std::uint64_t end_ns) {
    if (begin_ns < end_ns) spans_.push_back({phase, begin_ns, end_ns});
  }

  std::vector<PhaseSpan> spans_;
  std::optional<Phase> phase_;
  std::uint64_t begin_ns_ = 0;
};

const RequestEvent* find(const RequestHistory& history, RequestEventKind kind) {
  for (const RequestEvent* event : history.events) {
    if (event->kind == kind) return event;
  }
  return nullptr;
}

/// False if it went on, but nobody told from when: then the preemption is no phase.
bool is_restored_later(const RequestHistory& history, const RequestEvent* preempted) {
  const RequestEvent* finished = nullptr;
  bool is_later = false;
  for (const RequestEvent* event : history.events) {
    if (is_later && event->kind == RequestEventKind::restored) return true;
    if (event->kind == RequestEventKind::finished) finished = event;
    is_later = is_later || event == preempted;
  }
  return finished == nullptr || finished->detail == "cancelled" || finished->detail == "failed";
}

double seconds_between(const RequestEvent& from, const RequestEvent& to) {
  return to.ns < from.ns ? 0 : static_cast<double>(to.ns - from.ns) / 1e9;
}

}  // namespace

std::vector<PhaseSpan> RequestHistory::phases(std::uint64_t end_ns) const {
  const bool has_chunks = find(*this, RequestEventKind::chunk) != nullptr;
  // Between chunks nothing is drawn; without any, all of the time until the first token is prefill.
  const auto prefilling = has_chunks ? std::optional<Phase>() : std::optional(Phase::prefill);
  std::optional<Phase> working = prefilling;
  PhaseList list;
  for (const RequestEvent* event : events) {
    switch (event->kind) {
      case RequestEventKind::queued:
        list.change(Phase::queued, event->ns);
        break;
      case RequestEventKind::started:
        list.change(prefilling, event->ns);
        break;
      case RequestEventKind::chunk:
        list.insert(Phase::prefill, event->ns, event->end_ns, working);
        break;
      case RequestEventKind::first_token:
        list.change(working = Phase::decode, event->ns);
        break;
      case RequestEventKind::preempted:
        if (is_restored_later(*this, event)) list.change(Phase::preempted, event->ns);
        break;
      case RequestEventKind::restored:
        list.insert(Phase::restored, event->ns, event->end_ns, working);
        break;
      case RequestEventKind::finished:
        list.change(std::nullopt, event->ns);
        return list.take();
    }
  }
  list.change(std::nullopt, end_ns);
  return list.take();
}

std::vector<RequestHistory> request_histories(const RunEvents& run) {
  std::vector<RequestHistory> histories;
  std::map<RequestId, std::size_t> places;
  for (const RequestEvent& event : run.requests) {
    const auto [place, is_new] = places.try_emplace(event.request, histories.size());
    if (is_new) histories.push_back({event.request, {}});
    histories[place->second].events.push_back(&event);
  }
  for (RequestHistory& history : histories) {
    std::stable_sort(history.events.begin(), history.events.end(),
                     [](const RequestEvent* a, const RequestEvent* b) { return a->ns < b->ns; });
  }
  return histories;
}

LatencySamples latencies(const std::vector<RequestHistory>& histories) {
  LatencySamples samples;
  for (const RequestHistory& history : histories) {
    const RequestEvent* queued = find(history, RequestEventKind::queued);
    const RequestEvent* first = find(history, RequestEventKind::first_token);
    const RequestEvent* finished = find(history, RequestEventKind::finished);
    if (queued == nullptr || first == nullptr) continue;
    samples.first_token.push_back(seconds_between(*queued, *first));
    if (finished == nullptr) continue;
    samples.end_to_end.push_back(seconds_between(*queued, *finished));
    if (finished->tokens > 1) {
      samples.between_tokens.push_back(seconds_between(*first, *finished) / static_cast<double>(finished->tokens - 1));
    }
  }
  return samples;
}

}  // namespace quire::html
