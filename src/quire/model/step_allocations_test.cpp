// A step asks the allocator for nothing once it is warm. This file replaces the global operator new of its test program
// with one that counts.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "quire/model/model.h"
#include "quire/model/tiny_model.h"

namespace {
std::atomic<std::int64_t> num_allocations{0};
}

[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++num_allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* memory = operator new(bytes, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace quire::model {
namespace {

TEST(Model, AStepAllocatesNothingOnceWarm) {
  const std::string image = build_tiny_model({}).build();
  auto file = GgufFile::parse(std::as_bytes(std::span(image.data(), image.size())));
  ASSERT_TRUE(file.ok()) << file.error().message;
  ThreadPool pool(2);
  LoadOptions options;
  options.tier = choose_cpu_tier("").value().tier;  // the readable scalar products do allocate
  options.max_context = options.max_batch_tokens = 64;
  options.max_logit_rows = 1;
  auto model = Model::load(*file, pool, options);
  ASSERT_TRUE(model.ok()) << model.error().message;
  attention::KvLayout layout;
  layout.num_layers = layout.num_kv_heads = 2;
  layout.head_dim = 16;
  attention::KvStore store(layout, 5);
  const std::vector<TokenId> tokens(40, TokenId{3});
  const BlockId blocks[] = {BlockId{1}, BlockId{2}, BlockId{3}, BlockId{4}};
  const attention::SequenceChunk chunks[] = {{std::span(blocks).first(3), 0, 39, 0},
                                             {std::span(blocks).last(1), 0, 1, 39}};
  const std::int64_t logit_rows[] = {38, 39};
  ForwardInput input;
  input.tokens = tokens;
  input.chunks = chunks;
  input.logit_rows = logit_rows;
  (*model)->forward(pool, store, input);
  const std::int64_t before = num_allocations;
  for (int i = 0; i < 3; ++i) (*model)->forward(pool, store, input);
  EXPECT_EQ(num_allocations - before, 0);
}

}  // namespace
}  // namespace quire::model
