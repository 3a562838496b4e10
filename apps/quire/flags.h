#pragma once
// Flags that several commands share, and opening the engine with them.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "quire/engine/engine.h"
#include "quire/sampling/sampling_params.h"

namespace quire::cli {

/// "64MiB", "1.5 GB" or "1000000" as bytes. KiB, MiB, GiB, TiB and the letters K, M, G, T are powers of 1024; kB, MB,
/// GB, TB powers of 1000.
Result<std::uint64_t> parse_bytes(std::string_view text);

/// The environment: QUIRE_CPU names the CPU tier; QUIRE_TEST_F32=1 asks for the reference arithmetic.
Result<void> read_environment(engine::EngineOptions& options);

/// MODEL and the flags of the engine, written to `options`, which must outlive the parsing.
void add_model(CLI::App& command, std::string& path);
void add_engine_flags(CLI::App& command, engine::EngineOptions& options);
void add_sampling_flags(CLI::App& command, sampling::SamplingParams& params);

/// Opens the engine with the environment's settings, showing progress on stderr if that is a terminal.
Result<std::unique_ptr<engine::Engine>> open_engine(engine::EngineOptions options);

/// A seed for people who did not give one.
std::uint64_t draw_seed();

}  // namespace quire::cli
