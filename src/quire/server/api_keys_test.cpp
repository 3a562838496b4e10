#include "quire/server/api_keys.h"

#include <gtest/gtest.h>

#include <set>

#include "quire/server/api_world_test.h"

namespace quire::server {
namespace {

// vLLM 18892: the key guarded only the paths under /v1.
TEST(Api, WithApiKeysEveryRouteButHealthAndReadyWantsOne) {
  const DigestHasher hasher;
  ApiWorld world({.model_names = {"tiny"}, .keys = *ApiKeys::create({"key-of-anna", "key-of-bert"}, hasher)});
  const auto send = [&world](HttpRequest request, const char* authorization) {
    if (authorization) request.headers.emplace_back("authorization", authorization);
    return world.send(std::move(request))->response;
  };
  for (const char* path : {"/metrics", "/v1/models", "/v1/models/tiny", "/v1/kv", "/nowhere"}) {
    for (const char* bad : {static_cast<const char*>(nullptr), "Bearer key-of-nobody", "Basic key-of-anna", "Bearer",
                            "Bearer ", "key-of-anna", ""})
      EXPECT_EQ(send(make_get(path), bad).status, 401) << path << " with " << (bad ? bad : "no header");
    EXPECT_NE(send(make_get(path), "Bearer key-of-anna").status, 401) << path;
    EXPECT_NE(send(make_get(path), "bearer  key-of-bert").status, 401) << path;
  }
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"})
    EXPECT_EQ(send(make_post(path, "{}"), nullptr).status, 401) << path;
  HttpRequest options = make_get("/v1/completions");
  options.method = "OPTIONS";
  EXPECT_EQ(send(options, nullptr).status, 401);
  EXPECT_EQ(send(make_get("/health"), nullptr).status, 200);
  EXPECT_EQ(send(make_get("/ready"), nullptr).status, 200);
  const HttpResponse refused = send(make_get("/v1/kv"), nullptr);
  EXPECT_NE(refused.body.find("invalid_api_key"), std::string::npos) << refused.body;
}

TEST(Api, KeysSeparateCachedPrefixesAndSoDoTheSaltsUnderThem) {
  const DigestHasher hasher;
  ApiWorld world({.model_names = {"tiny"}, .keys = *ApiKeys::create({"key-of-anna", "key-of-bert"}, hasher)});
  std::set<std::string> salts;
  for (const char* key : {"Bearer key-of-anna", "Bearer key-of-bert"}) {
    for (const char* body : {R"({"prompt":"Hi"})", R"({"prompt":"Hi","cache_salt":"x"})"}) {
      HttpRequest request = make_post(kCompletions, body);
      request.headers.emplace_back("authorization", key);
      world.send(std::move(request));
      salts.insert(world.backend.submissions.back().request.cache_salt);
    }
  }
  EXPECT_EQ(salts.size(), 4u);
  for (const std::string& salt : salts) EXPECT_EQ(salt.find("anna"), std::string::npos) << "a key in a salt: " << salt;
}

TEST(ApiKeys, RefusesKeysThatNoHeaderCanCarry) {
  const DigestHasher hasher;
  for (const char* key : {"", "short", "with space", "caf\xC3\xA9-key"}) {
    EXPECT_FALSE(ApiKeys::create({"good-key", key}, hasher).ok()) << key;
  }
}

TEST(Api, KvReportSaysWhatTheMemoryIsUsedFor) {
  ApiWorld world;
  engine::EngineStats& stats = world.backend.stats_;
  stats.blocks_total = 100;
  stats.blocks_used = 20;
  stats.blocks_cached = 30;
  stats.prefix_queries = 400;
  stats.prefix_hits = 100;
  stats.preemptions = 2;
  stats.kv = {.manager = "paged",
              .prefix_cache = true,
              .block_size = 16,
              .block_bytes = 1000,
              .table_entries = 25,
              .unfilled_slots = 32,
              .preempted = 1,
              .copied_blocks = 3,
              .recomputed_tokens = 17,
              .preemptions_by = {2},
              .ram_bytes = 9000,
              .file_bytes = 500};
  stats.kv.tiers = {.blocks_stored = 7, .blocks_loaded = 6, .reads = {4, 1}, .frames_total = 9, .frames_keyed = 5};
  auto exchange = world.send(make_get("/v1/kv"));
  EXPECT_EQ(exchange->response.status, 200);
  EXPECT_EQ(
      exchange->response.body,
      R"({"manager":"paged","block_size":16,"block_bytes":1000,)"
      R"("blocks":{"total":100,"used":20,"cached":30,"free":50},"bytes":{"total":100000,"used":20000},)"
      R"("fragmentation":{"unfilled_slots":32,"internal":0.1,"external":0},)"
      R"("sharing":{"table_entries":25,"saved_blocks":5,"saved_bytes":5000,"saved":0.2,"copied_blocks":3},)"
      R"("prefix_cache":{"enabled":true,"queried_tokens":400,"hit_tokens":100,"hit_rate":0.25,"evicted_blocks":0},)"
      R"("requests":{"running":0,"waiting":0,"preempted":1},)"
      R"("preemptions":{"total":2,"recomputed_tokens":17,"by_kind":{"swap":2,"recompute_asked":0,)"
      R"("recompute_no_tiers":0,"recompute_no_room":0,"recompute_cheaper":0,"recompute_refused":0}},)"
      R"("ram_tier":{"bytes":9000,"blocks":9,"keyed":5,"private":0,"stored_blocks":7,"loaded_blocks":6,)"
      R"("lost_blocks":0,"evicted_blocks":0},)"
      R"("file_tier":{"bytes":500,"files":0,"removed_files":0,"writes_waiting":0,"writes_given_up":0,)"
      R"("writes":{"done":0,"missing":0,"io_error":0,"damaged":0,"mismatch":0,"no_space":0,"timed_out":0},)"
      R"("reads":{"done":4,"missing":1,"io_error":0,"damaged":0,"mismatch":0,"no_space":0,"timed_out":0}}})");
}

TEST(Api, TheKvReportOfVAttentionHasItsPageGroups) {
  ApiWorld world;
  engine::EngineStats& stats = world.backend.stats_;
  stats.blocks_used = 5;
  stats.kv.manager = "vattention";
  stats.kv.spare_blocks = 3;
  stats.kv.unmapped_blocks = 2;
  stats.kv.mappings = 7;
  stats.kv.maps = 9;
  stats.kv.ahead_maps = 4;
  stats.kv.unmaps = 1;
  auto exchange = world.send(make_get("/v1/kv"));
  const std::string expected = R"("page_groups":{"held":5,"spare":3,"unmapped":2,"mappings":7,"maps":9,"ahead_maps":4,)"
                               R"("unmaps":1,"refused_maps":0})";
  EXPECT_NE(exchange->response.body.find(expected), std::string::npos) << exchange->response.body;
}

}  // namespace
}  // namespace quire::server
