#include "quire/sched/request.h"

namespace quire {

std::string_view to_string(RequestState state) {
  switch (state) {
    case RequestState::waiting:
      return "waiting";
    case RequestState::running:
      return "running";
    case RequestState::preempted:
      return "preempted";
    case RequestState::finished:
      return "finished";
  }
  return "unknown";
}

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop_token:
      return "stop_token";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::failed:
      return "failed";
    case FinishReason::stopped_by_caller:
      return "stopped_by_caller";
  }
  return "unknown";
}

bool is_legal_edge(RequestState from, RequestState to) {
  switch (from) {
    case RequestState::waiting:
      return to == RequestState::running || to == RequestState::finished;
    case RequestState::running:
      return to == RequestState::preempted || to == RequestState::finished;
    case RequestState::preempted:
      return to == RequestState::running || to == RequestState::finished;
    case RequestState::finished:
      return false;
  }
  return false;
}

}  // namespace quire
