#pragma once
// loading: everything between a path and a model that can run: the file, the tokenizer, the template, the packed
// weights, the KV pool and how large it may be.

#include <memory>
#include <optional>

#include "quire/attention/kv_memory.h"
#include "quire/base/thread_pool.h"
#include "quire/engine/engine.h"
#include "quire/engine/reservation.h"
#include "quire/engine/sha256_hasher.h"
#include "quire/model/model.h"
#include "quire/text/chat_template.h"
#include "quire/text/tokenizer.h"

namespace quire::engine {

struct Loaded {
  EngineInfo info;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  std::unique_ptr<model::Model> model;
  std::unique_ptr<attention::KvStore> store;                 ///< null with vattention
  std::unique_ptr<attention::VirtualKvStore> virtual_store;  ///< null without
  Reservation reserved;                                      ///< as which all of this was loaded

  std::unique_ptr<Sha256Hasher> hasher;  ///< null without a prefix cache
  BlockKey cache_domain;

  attention::KvMemory memory() const {
    return store ? attention::KvMemory(*store) : attention::KvMemory(*virtual_store);
  }
};

/// An error names the option, key or tensor at fault and what to do.
Result<Loaded> load(const EngineOptions& options);

}  // namespace quire::engine
