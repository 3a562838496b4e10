#include "quire/core/load_script.h"

#include <algorithm>

#include "quire/base/cat.h"
#include "quire/base/rng.h"
#include "quire/sched/policy.h"

namespace quire {
namespace {

/// What a seed switches on.
struct Swarm {
  bool cancels, finishes, failures, stop_tokens, prompt_logits, open_ended, bursts;
  bool cache, shared_prefixes, salts, collisions, priorities, layer_groups;
  bool ram, files, slow_disk, disk_faults, few_files, rates, restarts;
  bool branches, beams, refusals;
  explicit Swarm(Rng& rng)
      : cancels(rng.chance(0.5)),
        finishes(rng.chance(0.3)),
        failures(rng.chance(0.3)),
        stop_tokens(rng.chance(0.5)),
        prompt_logits(rng.chance(0.3)),
        open_ended(rng.chance(0.3)),
        bursts(rng.chance(0.5)),
        cache(rng.chance(0.75)),
        shared_prefixes(rng.chance(0.8)),
        salts(rng.chance(0.3)),
        collisions(rng.chance(0.15)),
        priorities(rng.chance(0.5)),
        layer_groups(rng.chance(0.25)),
        ram(rng.chance(0.7)),
        files(rng.chance(0.7)),
        slow_disk(rng.chance(0.6)),
        disk_faults(rng.chance(0.6)),
        few_files(rng.chance(0.4)),
        rates(rng.chance(0.3)),
        restarts(rng.chance(0.5)),
        branches(rng.chance(0.5)),
        beams(rng.chance(0.4)),
        refusals(rng.chance(0.3)) {}
};

std::string_view any_of(Rng& rng, std::span<const std::string_view> names) {
  return names[static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(names.size()) - 1))];
}

/// A full group, and others with windows that may be shorter than a block or longer than any sequence.
std::vector<LayerGroup> random_groups(Rng& rng, std::int32_t block_size) {
  std::vector<LayerGroup> groups = {LayerGroup{}};
  for (std::int64_t i = rng.between(1, 3); i > 0; --i)
    groups.push_back({static_cast<std::int32_t>(rng.chance(0.2) ? 0 : rng.between(1, 4 * block_size))});
  return groups;
}

CoreOptions random_options(Rng& rng, const Swarm& swarm) {
  constexpr std::int32_t kBlockSizes[] = {8, 8, 8, 16, 16, 32, 64, 128};
  CoreOptions options;
  options.block_size = kBlockSizes[rng.between(0, 7)];
  options.num_blocks = static_cast<std::int32_t>(rng.between(3, options.block_size > 32 ? 6 : 40));
  options.token_budget = static_cast<std::int32_t>(rng.chance(0.3) ? rng.between(1, 8) : rng.between(4, 96));
  if (swarm.layer_groups) {
    options.layer_groups = random_groups(rng, options.block_size);
    options.num_blocks *= static_cast<std::int32_t>(options.layer_groups.size());
  }
  options.context_tokens = static_cast<std::int32_t>(
      rng.chance(0.5) ? options.pool_tokens() : rng.between(options.block_size, 2 * options.pool_tokens()));
  options.max_rows = static_cast<std::int32_t>(rng.chance(0.5) ? rng.between(1, 4) : rng.between(4, 24));
  options.watermark_blocks = static_cast<std::int32_t>(rng.between(-1, 3));
  options.ageing_steps = static_cast<std::int32_t>(rng.chance(0.5) ? rng.between(1, 60) : 1024);
  options.queue_policy = any_of(rng, queue_policy_names());
  options.victim_policy = any_of(rng, victim_policy_names());
  return options;
}

/// Tiles within page-groups, page-groups within tiles, and neither; up to eight tiles in all.
void set_vattention(Rng& rng, CoreOptions& options) {
  constexpr std::int64_t kTileBytes[] = {4, 6, 10, 12}, kGroupBytes[] = {4, 5, 8, 30};
  options.kv_manager = "vattention";
  options.layer_groups = CoreOptions().layer_groups;
  options.block_size = kKvTileTokens;
  options.tile_bytes = kTileBytes[rng.between(0, 3)];
  options.page_group_bytes = kGroupBytes[rng.between(0, 3)];
  const PageGroupGeometry geometry = options.page_groups();
  options.num_blocks = static_cast<std::int32_t>(
      rng.between(geometry.groups_for(kKvTileTokens), geometry.groups_for((rng.chance(0.5) ? 8 : 20) * kKvTileTokens)));
  options.context_tokens = static_cast<std::int32_t>(
      rng.chance(0.5) ? options.pool_tokens() : rng.between(kKvTileTokens, 2 * options.pool_tokens()));
  options.watermark_blocks = static_cast<std::int32_t>(rng.between(-1, 3));
  options.num_idle_places = static_cast<std::int32_t>(rng.between(0, 6));
  const std::int32_t least = options.num_blocks + options.max_rows + options.num_idle_places + 1;
  options.max_mappings = rng.chance(0.3) ? 64'000 : least + static_cast<std::int32_t>(rng.between(0, least));
}

/// With layer groups from numbers of its own, so that what else a seed makes does not depend on it.
void set_tiers(Rng& script_rng, const Swarm& swarm, LoadScript& script) {
  CoreOptions& options = script.options;
  if (!swarm.cache || !swarm.ram) return;
  const auto num_groups = static_cast<std::int32_t>(options.layer_groups.size());
  Rng own(script.seed + (std::uint64_t{2} << 32));
  Rng& rng = num_groups > 1 ? own : script_rng;
  options.kv_ram_frames =
      static_cast<std::int32_t>(rng.chance(0.5) ? rng.between(1, 6) : rng.between(4, 60)) * num_groups;
  constexpr std::string_view kModes[] = {"auto", "auto", "swap", "recompute"};
  options.preemption = kModes[rng.between(0, 3)];
  if (swarm.rates) options.copy_block_ns = rng.between(1, 1000);
  if (swarm.rates) options.compute_token_ns = rng.between(1, 100);
  if (!swarm.files) return;
  options.kv_files = true;
  script.disk = {script.seed, swarm.slow_disk ? 0.3 : 1, swarm.disk_faults ? 0.2 : 0};
  if (swarm.few_files) script.max_files = static_cast<std::size_t>(rng.between(1, 30));
  script.restarts = swarm.restarts;
}

/// Of few tokens, so that proposals come true often enough, and do not often enough. From numbers of its own.
void set_speculation(LoadScript& script) {
  Rng rng(script.seed + (std::uint64_t{1} << 32));
  if (!rng.chance(0.4)) return;
  constexpr std::int32_t kVocabularies[] = {1, 2, 2, 3, 4, 40};
  script.vocabulary = kVocabularies[rng.between(0, 5)];
  CoreOptions& options = script.options;
  options.num_speculative_tokens = static_cast<std::int32_t>(rng.chance(0.7) ? rng.between(1, 6) : rng.between(7, 20));
  options.ngram.min_match = static_cast<std::int32_t>(rng.between(1, 2));
  options.ngram.max_match = options.ngram.min_match + static_cast<std::int32_t>(rng.between(0, 3));
}

/// Makes the requests of one script.
class RequestMaker {
 public:
  RequestMaker(Rng& rng, const Swarm& swarm, const LoadScript& script) : rng_(rng), swarm_(swarm), script_(script) {}

  std::uint64_t num_made() const { return num_made_; }

  CoreRequest next() {
    CoreRequest request = base_request();
    if (swarm_.shared_prefixes) share_prefix(request);
    if (swarm_.priorities) request.priority = static_cast<std::int32_t>(rng_.between(-2, 2));
    if (swarm_.salts && rng_.chance(0.5)) request.salt = rng_.chance(0.5) ? "a" : "b";
    made_.push_back(request);
    return request;
  }

 private:
  const CoreOptions& options() const { return script_.options; }

  /// Near block boundaries as often as not.
  std::int32_t random_length(std::int64_t limit) {
    std::int64_t length = rng_.between(1, limit);
    if (rng_.chance(0.5)) length = length / options().block_size * options().block_size + rng_.between(-1, 1);
    return static_cast<std::int32_t>(std::min(std::max<std::int64_t>(length, 1), limit));
  }

  CoreRequest base_request() {
    const std::int64_t room = std::min<std::int64_t>(options().context_tokens, options().pool_tokens());
    const std::int64_t limit = rng_.chance(0.2) ? room : std::max<std::int64_t>(1, room / rng_.between(2, 6));
    CoreRequest request;
    request.id = RequestId{++num_made_};
    request.prompt = make_prompt(request.id, random_length(limit), script_.vocabulary);
    if (!swarm_.open_ended || rng_.chance(0.8))
      request.max_tokens = rng_.chance(0.1) ? 0 : random_length(std::min<std::int64_t>(limit, 60));
    if (swarm_.stop_tokens && rng_.chance(0.7)) {
      for (std::int64_t i = rng_.between(1, 3); i > 0; --i)
        request.stop_tokens.push_back(TokenId{static_cast<std::int32_t>(rng_.between(0, script_.vocabulary - 1))});
      if (rng_.chance(0.3)) request.min_tokens = static_cast<std::int32_t>(rng_.between(0, 12));
    }
    if (swarm_.prompt_logits && rng_.chance(0.5))
      request.logits_from =
          static_cast<std::int32_t>(rng_.between(0, static_cast<std::int64_t>(request.prompt.size()) - 1));
    if (swarm_.branches && rng_.chance(0.5)) request.num_branches = static_cast<std::int32_t>(rng_.between(2, 5));
    if (swarm_.beams && rng_.chance(0.4)) make_search(request);
    return request;
  }

  void make_search(CoreRequest& request) {
    constexpr double kPenalties[] = {1, 1, 0, 0.5, 2, -1};
    BeamParams& beams = request.beams.emplace();
    beams.width = static_cast<std::int32_t>(rng_.between(1, 5));
    beams.num_returned = static_cast<std::int32_t>(rng_.between(1, beams.width));
    beams.length_penalty = kPenalties[rng_.between(0, 5)];
    beams.early_stopping = static_cast<EarlyStopping>(rng_.between(0, 2));
    request.num_branches = 1;
    if (request.max_tokens && rng_.chance(0.8)) request.max_tokens = std::clamp(*request.max_tokens, 1, 20);
  }

  /// A beginning that other requests have too: of a document, or of an earlier request with its answer (a
  /// conversation).
  void share_prefix(CoreRequest& request) {
    const auto length = static_cast<std::int32_t>(request.prompt.size());
    std::vector<TokenId> shared =
        make_prompt(RequestId{static_cast<std::uint64_t>(1000 + rng_.between(0, 2))}, length, script_.vocabulary);
    if (!made_.empty() && rng_.chance(0.4)) {
      const CoreRequest& earlier =
          made_[static_cast<std::size_t>(rng_.between(0, static_cast<std::int64_t>(made_.size()) - 1))];
      shared = earlier.prompt;
      if (static_cast<std::int64_t>(shared.size()) < length) {
        const OracleAnswer answer = oracle_answer(earlier, options(), script_.vocabulary);
        shared.insert(shared.end(), answer.tokens.begin(), answer.tokens.end());
      }
    }
    const std::int64_t limit = std::min<std::int64_t>(length, static_cast<std::int64_t>(shared.size()));
    const std::int64_t count = rng_.chance(0.3) ? limit : rng_.between(0, limit);
    std::copy(shared.begin(), shared.begin() + count, request.prompt.begin());
  }

  Rng& rng_;
  const Swarm& swarm_;
  const LoadScript& script_;
  std::uint64_t num_made_ = 0;
  std::vector<CoreRequest> made_;
};

void add_faults(Rng& rng, const Swarm& swarm, std::uint64_t num_submitted, ScriptStep& step) {
  const RequestId target{static_cast<std::uint64_t>(rng.between(1, static_cast<std::int64_t>(num_submitted) + 2))};
  const auto any_number = [&] { return ScriptTarget{target, static_cast<std::int32_t>(rng.between(0, 3))}; };
  if (swarm.cancels && rng.chance(0.08)) step.cancels.assign(rng.chance(0.3) ? 2 : 1, target);
  if (swarm.finishes && rng.chance(0.05)) step.finishes.push_back(any_number());
  if (swarm.failures && rng.chance(0.05)) step.failures.push_back(any_number());
  if (swarm.refusals && rng.chance(0.05))
    step.refusals.push_back({target, static_cast<std::int32_t>(rng.chance(0.7) ? 1 : rng.between(2, 6))});
}

void play(const ScriptStep& step, ShadowRun& run) {
  for (const CoreRequest& request : step.submits) static_cast<void>(run.submit(request));
  for (RequestId id : step.cancels) run.cancel(id);
  for (const ScriptTarget& target : step.finishes) run.finish(target.request, target.number);
  for (const ScriptTarget& target : step.failures) run.fail_next_row(target.request, target.number);
  for (const ScriptTarget& target : step.refusals) run.refuse_rows(target.request, target.number);
  if (run.core().has_work()) run.step();
}

/// Calls `shorter` with smaller and smaller cuts of [0, size) until none is taken any more.
void cut_down(std::size_t size, const std::function<bool(std::size_t begin, std::size_t count)>& take_out) {
  for (std::size_t count = std::max<std::size_t>(size / 2, 1); size > 0; count /= 2) {
    for (std::size_t begin = 0; begin + count <= size;) {
      if (take_out(begin, count)) {
        size -= count;
      } else {
        begin += count;
      }
    }
    if (count == 1) return;
  }
}

template <class List>
bool shrink_list(LoadScript& script, List ScriptStep::*list, const std::function<bool(const LoadScript&)>& fails) {
  bool shrunk = false;
  for (std::size_t s = 0; s < script.steps.size(); ++s) {
    cut_down((script.steps[s].*list).size(), [&](std::size_t begin, std::size_t count) {
      LoadScript smaller = script;
      auto& items = smaller.steps[s].*list;
      const auto first = items.begin() + static_cast<std::ptrdiff_t>(begin);
      items.erase(first, first + static_cast<std::ptrdiff_t>(count));
      if (!fails(smaller)) return false;
      script = std::move(smaller);
      return shrunk = true;
    });
  }
  return shrunk;
}

bool shrink_requests(LoadScript& script, const std::function<bool(const LoadScript&)>& fails) {
  bool shrunk = false;
  const auto attempt = [&](std::size_t step, std::size_t index, const std::function<void(CoreRequest&)>& change) {
    LoadScript smaller = script;
    change(smaller.steps[step].submits[index]);
    if (!fails(smaller)) return;
    script = std::move(smaller);
    shrunk = true;
  };
  for (std::size_t s = 0; s < script.steps.size(); ++s) {
    for (std::size_t i = 0; i < script.steps[s].submits.size(); ++i) {
      const CoreRequest request = script.steps[s].submits[i];
      if (request.prompt.size() > 1)
        attempt(s, i, [](CoreRequest& r) { r.prompt.resize((r.prompt.size() + 1) / 2), r.logits_from.reset(); });
      if (request.max_tokens.value_or(2) > 1)
        attempt(s, i, [](CoreRequest& r) { r.max_tokens = r.max_tokens.value_or(32) / 2; });
      if (!request.stop_tokens.empty()) attempt(s, i, [](CoreRequest& r) { r.stop_tokens.clear(), r.min_tokens = 0; });
      if (request.num_branches > 1) attempt(s, i, [](CoreRequest& r) { r.num_branches = r.num_branches / 2; });
      if (request.beams && request.beams->width > 1)
        attempt(s, i, [](CoreRequest& r) { r.beams->width /= 2, r.beams->num_returned = 1; });
      if (request.logits_from) attempt(s, i, [](CoreRequest& r) { r.logits_from.reset(); });
    }
  }
  return shrunk;
}

std::string tokens_text(const std::vector<TokenId>& tokens) {
  std::string text;
  for (TokenId token : tokens) text += cat(text.empty() ? "" : ",", token);
  return text;
}

std::string request_text(const CoreRequest& request) {
  std::string text = cat("  submit ", request.id, " prompt ", tokens_text(request.prompt));
  if (request.max_tokens) text += cat(" max_tokens ", *request.max_tokens);
  if (!request.stop_tokens.empty()) text += cat(" stop ", tokens_text(request.stop_tokens));
  if (request.min_tokens > 0) text += cat(" min_tokens ", request.min_tokens);
  if (request.logits_from) text += cat(" logits_from ", *request.logits_from);
  if (request.priority != 0) text += cat(" priority ", request.priority);
  if (!request.salt.empty()) text += cat(" salt ", request.salt);
  if (request.num_branches > 1) text += cat(" branches ", request.num_branches);
  if (request.beams)
    text += cat(" beams ", request.beams->width, " returned ", request.beams->num_returned, " length_penalty ",
                request.beams->length_penalty, " early_stopping ", static_cast<int>(request.beams->early_stopping));
  return text + "\n";
}

}  // namespace

std::size_t LoadScript::num_commands() const {
  std::size_t count = 0;
  for (const ScriptStep& step : steps) count += step.num_commands();
  return count;
}

LoadScript make_script(std::uint64_t seed, ScriptMemory memory) {
  Rng rng(seed);
  const Swarm swarm(rng);
  LoadScript script;
  script.seed = seed;
  script.options = random_options(rng, swarm);
  script.options.prefix_cache = swarm.cache;
  script.hash_collides = swarm.collisions;
  if (memory == ScriptMemory::vattention) {
    set_vattention(rng, script.options);
  } else {
    set_tiers(rng, swarm, script);
    set_speculation(script);
  }
  RequestMaker maker(rng, swarm, script);
  const auto num_requests = static_cast<std::uint64_t>(rng.between(1, 24));
  while (maker.num_made() < num_requests) {
    ScriptStep& step = script.steps.emplace_back();
    for (std::int64_t burst = swarm.bursts ? rng.between(0, 8) : rng.chance(0.3); burst > 0; --burst) {
      step.submits.push_back(maker.next());
      if (rng.chance(0.1)) step.submits.push_back(step.submits.back());  // a duplicate id
    }
    add_faults(rng, swarm, maker.num_made(), step);
  }
  for (int i = 0; i < 20; ++i) add_faults(rng, swarm, maker.num_made(), script.steps.emplace_back());
  return script;
}

namespace {

void add_tiers(const EngineCore& core, ScriptTotals& totals) {
  const KvTierCounters tiers = core.kv().tier_counters();
  const auto& preemptions = core.counters().preemptions_by;
  totals.refusals += preemptions[static_cast<std::size_t>(PreemptionKind::recompute_refused)];
  totals.swaps += preemptions[static_cast<std::size_t>(PreemptionKind::swap)];
  totals.no_room += preemptions[static_cast<std::size_t>(PreemptionKind::recompute_no_room)];
  totals.loads += tiers.blocks_loaded;
  if (core.options().layer_groups.size() > 1) totals.group_loads += tiers.blocks_loaded;
  totals.frames_evicted += tiers.frames_evicted;
  totals.files_removed += tiers.files_removed;
  totals.file_reads += tiers.reads[0];
  for (std::size_t i = 1; i < tiers.reads.size(); ++i) totals.failed_reads += tiers.reads[i];
}

/// One core's life; `files` are those that it finds, then those that it leaves.
std::optional<std::string> run_once(const LoadScript& script, ShadowFiles& files, ScriptTotals& totals) {
  const CollidingHasher colliding;
  ShadowRun run(script.options, script.vocabulary, script.hash_collides ? &colliding : nullptr);
  run.set_disk(script.disk);
  run.tiers().set_max_files(script.max_files);
  if (script.options.kv_files) run.put_files(std::move(files));
  for (const ScriptStep& step : script.steps) {
    play(step, run);
    if (run.problem()) return run.problem();
  }
  run.run_to_end();  // no more faults: everything ends within the bound
  if (!run.problem()) run.check_end();
  const CoreCounters& counters = run.core().counters();
  const KvCacheCounters cache = run.core().kv().cache_counters();
  totals.steps += counters.steps;
  totals.preemptions += counters.preemptions;
  totals.refused += counters.refused;
  totals.proposed += counters.proposed_tokens;
  totals.accepted += counters.accepted_tokens;
  totals.hits += counters.prefix_hits;
  totals.evictions += cache.evicted_blocks;
  totals.collisions += cache.collisions;
  for (const auto& [id, answer] : run.answers()) {
    totals.exempt += answer.num_preemptions == 3;
    totals.aged += answer.start_due_at.has_value();
    totals.gangs_preempted += answer.request.num_branches > 1 && answer.num_preemptions > 0;
    totals.searches_preempted += answer.request.beams && answer.num_preemptions > 0;
    totals.failed_by_refusal += answer.finished && answer.finished->reason == FinishReason::failed &&
                                !answer.is_disturbed && answer.num_refusals > 0;
  }
  add_tiers(run.core(), totals);
  files = std::move(run.tiers().files());
  return run.problem();
}

}  // namespace

std::optional<std::string> run_script(const LoadScript& script, ScriptTotals& totals) {
  ShadowFiles files;
  std::optional<std::string> problem = run_once(script, files, totals);
  if (!problem && script.restarts) problem = run_once(script, files, totals);
  return problem;
}

LoadScript shrink_script(LoadScript script, const std::function<bool(const LoadScript&)>& fails) {
  cut_down(script.steps.size(), [&](std::size_t begin, std::size_t count) {
    LoadScript smaller = script;
    const auto first = smaller.steps.begin() + static_cast<std::ptrdiff_t>(begin);
    smaller.steps.erase(first, first + static_cast<std::ptrdiff_t>(count));
    if (!fails(smaller)) return false;
    script = std::move(smaller);
    return true;
  });
  bool shrunk = true;
  while (shrunk) {
    shrunk = shrink_list(script, &ScriptStep::submits, fails);
    shrunk = shrink_list(script, &ScriptStep::cancels, fails) || shrunk;
    shrunk = shrink_list(script, &ScriptStep::finishes, fails) || shrunk;
    shrunk = shrink_list(script, &ScriptStep::failures, fails) || shrunk;
    shrunk = shrink_list(script, &ScriptStep::refusals, fails) || shrunk;
    shrunk = shrink_requests(script, fails) || shrunk;
  }
  return script;
}

std::string to_text(const LoadScript& script) {
  const CoreOptions& o = script.options;
  std::string text = cat("seed ", script.seed, ", ", script.num_commands(), " commands\n");
  text += cat("blocks ", o.num_blocks, " of ", o.block_size, ", context ", o.context_tokens, ", budget ",
              o.token_budget, ", rows ", o.max_rows, ", watermark ", o.watermark_blocks, ", ageing ", o.ageing_steps,
              ", queue ", o.queue_policy, ", victim ", o.victim_policy, ", steps ", o.step_composition, ", cache ",
              o.prefix_cache ? "on" : "off", script.hash_collides ? ", colliding hash" : "");
  for (std::size_t group = 1; group < o.layer_groups.size(); ++group)
    text += cat(group == 1 ? ", windows 0 " : " ", o.layer_groups[group].window);
  if (o.num_speculative_tokens > 0)
    text += cat(", proposes ", o.num_speculative_tokens, " of ", script.vocabulary, " tokens, by ", o.ngram.min_match,
                " to ", o.ngram.max_match);
  text += "\n";
  if (o.is_vattention())
    text += cat("vattention, tiles of ", o.tile_bytes, " bytes, page-groups of ", o.page_group_bytes, ", mappings ",
                o.max_mappings, ", idle places ", o.num_idle_places, "\n");
  if (o.kv_ram_frames > 0)
    text += cat("frames ", o.kv_ram_frames, ", files ", o.kv_files ? "on" : "off", ", preemption ", o.preemption,
                ", rates ", o.copy_block_ns, " ", o.compute_token_ns, ", disk ", script.disk.ends, " ",
                script.disk.faults, ", files kept ", script.max_files, script.restarts ? ", restarts" : "", "\n");
  for (std::size_t s = 0; s < script.steps.size(); ++s) {
    const ScriptStep& step = script.steps[s];
    if (step.num_commands() > 0) text += cat("before step ", s + 1, "\n");
    for (const CoreRequest& request : step.submits) text += request_text(request);
    for (RequestId id : step.cancels) text += cat("  cancel ", id, "\n");
    for (const ScriptTarget& target : step.finishes)
      text += cat("  finish branch ", target.number, " of ", target.request, "\n");
    for (const ScriptTarget& target : step.failures)
      text += cat("  fail the next row but ", target.number, " of ", target.request, "\n");
    for (const ScriptTarget& target : step.refusals)
      text += cat("  refuse memory in ", target.number, " steps of ", target.request, "\n");
  }
  return text;
}

}  // namespace quire
