#pragma once
// Any trace file, its format recognised by its content: CSV (Azure, Sarathi-Serve, vAttention, one's own), JSON lines
// (Mooncake, one's own), block traces, and tar archives (ServeGen, agent sessions); each plain or gzip.

#include "quire/traces/servegen.h"
#include "quire/workload/beam_forks.h"
#include "quire/workload/trace.h"

namespace quire {

struct TraceFileOptions {
  CsvTurns turns = CsvTurns::none;  ///< for CSV
  ServeGenOptions servegen;
};

Result<Trace> open_trace(const std::string& path, const TraceFileOptions& options = {});

/// The same for bytes that are already there.
Result<Trace> read_trace(std::string_view name, std::string_view bytes, const TraceFileOptions& options = {});

/// "conversation", "synthetic" (Mooncake's, as block traces) and "sharegpt" (first turns): embedded in the program.
/// Unpacked text; see data/README.md for where they are from.
Result<Trace> embedded_trace(std::string_view name);

/// Beam searches recorded from the engine, of sets alpaca and sharegpt; see data/README.md.
Result<std::vector<BeamForks>> embedded_beam_searches();

}  // namespace quire
