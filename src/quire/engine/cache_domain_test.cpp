#include "quire/engine/cache_domain.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "quire/engine/sha256_hasher.h"

namespace quire::engine {
namespace {

std::string hex(const BlockKey& key) {
  std::string text;
  for (std::byte byte : key.bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[std::to_integer<int>(byte) >> 4];
    text += kDigits[std::to_integer<int>(byte) & 15];
  }
  return text;
}

// FIPS 180-4 and the examples of NIST.
TEST(Sha256Hasher, GivesTheStandardsDigests) {
  const auto hasher = *Sha256Hasher::create();
  const auto of = [&](std::string_view text) { return hex(hasher->hash(std::as_bytes(std::span(text)))); };
  EXPECT_EQ(of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(ModelDigest, DependsOnEveryByteAndNotOnTheNumberOfThreads) {
  const auto hasher = *Sha256Hasher::create();
  std::vector<std::byte> file((std::size_t{9} << 20) + 5);  // three pieces
  ThreadPool one(1), three(3);
  const BlockKey whole = model_digest(*hasher, file, one);
  EXPECT_EQ(model_digest(*hasher, file, three), whole);
  for (std::size_t at : {std::size_t{0}, (std::size_t{4} << 20) - 1, std::size_t{4} << 20, file.size() - 1}) {
    file[at] = std::byte{1};
    EXPECT_NE(model_digest(*hasher, file, three), whole) << "byte " << at;
    file[at] = std::byte{0};
  }
  file.pop_back();
  EXPECT_NE(model_digest(*hasher, file, one), whole);
}

TEST(CacheDomain, EveryFieldCounts) {
  const auto hasher = *Sha256Hasher::create();
  const std::string model = "weights", same = "weights", other = "weightz";
  const attention::KvLayout layout{.num_layers = 2, .num_kv_heads = 3, .head_dim = 64, .block_size = 16};
  model::LayerGrouping grouping{{0}, 2, {{0, 0}, {0, 1}}};
  const auto digest = [&](const std::string& file, const attention::KvLayout& kv, bool reference) {
    return domain_digest(*hasher, {hasher->hash(std::as_bytes(std::span(file))), kv, grouping, reference});
  };
  const BlockKey plain = digest(model, layout, false);
  EXPECT_EQ(plain, digest(same, layout, false));
  EXPECT_NE(plain, digest(other, layout, false));  // B20: two models under one name
  EXPECT_NE(plain, digest(model, layout, true));
  for (std::int64_t attention::KvLayout::*field : {&attention::KvLayout::num_layers, &attention::KvLayout::num_kv_heads,
                                                   &attention::KvLayout::head_dim, &attention::KvLayout::block_size}) {
    attention::KvLayout changed = layout;
    changed.*field *= 2;
    EXPECT_NE(plain, digest(model, changed, false));
  }
  attention::KvLayout f32 = layout;
  f32.type = attention::KvType::f32;
  EXPECT_NE(plain, digest(model, f32, false));
  grouping.places = {{0, 1}, {0, 0}};
  EXPECT_NE(plain, digest(model, layout, false));
  grouping.places = {{0, 0}, {1, 0}};
  EXPECT_NE(plain, digest(model, layout, false));
}

}  // namespace
}  // namespace quire::engine
