#include "quire/attention/attention_scratch.h"

#include <utility>

namespace quire::attention {

AttentionScratch::AttentionScratch() : state_(new State) {}
AttentionScratch::~AttentionScratch() { delete state_; }
AttentionScratch::AttentionScratch(AttentionScratch&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
AttentionScratch& AttentionScratch::operator=(AttentionScratch&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

}  // namespace quire::attention
