#include "quire/engine/loading.h"

#include <chrono>
#include <utility>

#include "quire/engine/cache_domain.h"
#include "quire/engine/memory.h"
#include "quire/engine/tokenizer_data.h"

namespace quire::engine {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// The pool's memory is touched now: a machine that cannot give it fails here, not in the middle of a request.
void touch(ThreadPool& pool, attention::KvStore& store) {
  constexpr std::int64_t kPage = 4096;
  const auto memory = store.memory();
  const auto pages = static_cast<std::int64_t>(memory.size()) / kPage;
  pool.run([&](Worker& worker) {
    worker.for_each(pages, 512, [&](std::int64_t page) {
      *const_cast<volatile std::byte*>(memory.data() + page * kPage) = std::byte{0};
    });
  });
}

/// The memory of the pool, as info has it, and how much that took.
Result<void> make_store(const EngineOptions& options, Loaded& loaded) {
  EngineInfo& info = loaded.info;
  const attention::KvLayout& layout = loaded.reserved.layout;
  if (info.page_group_bytes == 0) {
    loaded.store = std::make_unique<attention::KvStore>(layout, info.num_blocks + 1);
    touch(*loaded.pool, *loaded.store);
    info.kv_store_bytes = loaded.store->bytes();
    return {};
  }
  QUIRE_TRY(loaded.virtual_store, attention::VirtualKvStore::create({.layout = layout,
                                                                     .group_bytes = info.page_group_bytes,
                                                                     .num_groups = info.num_blocks,
                                                                     .num_places = num_places(options),
                                                                     .context_tokens = info.context}));
  info.kv_store_bytes = static_cast<std::uint64_t>(loaded.virtual_store->pool_bytes());
  return {};
}

/// The tokenizer and the chat template.
Result<void> load_text(const model::GgufFile& file, Loaded& loaded) {
  QUIRE_TRY(TokenizerData data, tokenizer_data(file));
  QUIRE_TRY(loaded.tokenizer, Tokenizer::create(std::move(data)));
  QUIRE_TRY(std::optional<std::string> source, chat_template_source(file));
  if (!source) return {};
  // A template that cannot be read costs the chat, not the model.
  auto parsed = ChatTemplate::parse(*source);
  if (parsed.ok()) {
    loaded.chat_template = *std::move(parsed);
  } else {
    loaded.info.chat_template_fault = parsed.error().message;
  }
  return {};
}

}  // namespace

Result<Loaded> load(const EngineOptions& options) {
  const auto started = Clock::now();
  QUIRE_TRY_VOID(check_options(options));
  QUIRE_TRY(model::GgufFile file, model::GgufFile::open(options.model_path));

  Loaded loaded;
  EngineInfo& info = loaded.info;
  QUIRE_TRY_VOID(load_text(file, loaded));
  QUIRE_TRY(loaded.reserved, reserve_model(options, file, info));
  if (info.vocab_size != loaded.tokenizer->vocab_size()) {
    return fail("the model has ", info.vocab_size, " rows of embeddings, its tokenizer ",
                loaded.tokenizer->vocab_size(), " tokens; wanted the same number");
  }
  loaded.pool = std::make_unique<ThreadPool>(info.threads);
  std::optional<BlockKey> file_digest;
  if (options.prefix_cache || !options.repack_cache_dir.empty()) {
    QUIRE_TRY(loaded.hasher, Sha256Hasher::create());
    file_digest = model_digest(*loaded.hasher, file.image(), *loaded.pool);
  }
  const auto weights_started = Clock::now();
  model::LoadOptions load_options = loaded.reserved.load;
  load_options.repack_cache = {options.repack_cache_dir, file_digest.value_or(BlockKey{}).bytes};
  load_options.progress = options.progress;
  QUIRE_TRY(loaded.model, model::Model::load(file, *loaded.pool, load_options));
  info.weights_seconds = seconds_since(weights_started);
  info.repack = loaded.model->repack();
  info.weight_bytes = loaded.model->weight_bytes();
  info.scratch_bytes = loaded.model->scratch_bytes();

  QUIRE_TRY_VOID(reserve_kv(options, loaded.reserved, free_memory(), info));
  QUIRE_TRY_VOID(make_store(options, loaded));
  if (info.prefix_cache) {
    loaded.cache_domain = domain_digest(
        *loaded.hasher, {*file_digest, loaded.reserved.layout, loaded.reserved.grouping, options.reference_arithmetic});
  }
  info.load_seconds = seconds_since(started);
  return loaded;
}

}  // namespace quire::engine
