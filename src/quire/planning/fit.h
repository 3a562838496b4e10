#pragma once
// Fit: whether a model fits, and into what: the memory that an engine with these options takes, by part. The numbers
// are those by which the engine reserves (engine/reservation.h): what it measures after loading is equal, part by part.
// The last part is an allowance for what is not reserved up front: the tokenizer, the bookkeeping of blocks and
// requests, attention's partial results, connections, the program itself. Reads the file's metadata only.

#include <cstdint>
#include <string>
#include <vector>

#include "quire/base/result.h"
#include "quire/engine/reservation.h"

namespace quire::planning {

struct Memory {
  std::uint64_t bytes = 0;
  std::string source;  ///< "given", or as engine::FreeMemory::source
};

struct MemoryPart {
  std::string name;
  std::uint64_t bytes = 0;
  std::string what;  ///< it is made of
};

struct Fit {
  engine::EngineOptions options;  ///< as asked for, with kv_memory_bytes chosen
  engine::EngineInfo info;        ///< as the engine will have it, but for what only loading tells
  engine::Reservation reservation;
  CoreOptions core;
  Memory memory;
  std::vector<MemoryPart> parts;

  std::uint64_t total_bytes() const;
  std::uint64_t spare_bytes() const { return memory.bytes - total_bytes(); }
};

/// The allowance: of the process, and of its tokenizer by the size of the vocabulary.
std::uint64_t allowance_bytes(const engine::EngineInfo& info);

/// Without options.kv_memory_bytes the pool gets what the other parts leave. An error says how much is missing and
/// which flags change that.
Result<Fit> plan_fit(const engine::EngineOptions& options, const model::GgufFile& file, const Memory& memory);

}  // namespace quire::planning
