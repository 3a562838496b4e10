#pragma once
// Flags that several commands share, and opening the engine with them.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/engine/engine.h"
#include "quire/sampling/sampling_params.h"

namespace quire::cli {

/// "64MiB", "1.5 GB" or "1000000" as bytes. KiB, MiB, GiB, TiB and the letters K, M, G, T are powers of 1024; kB, MB,
/// GB, TB powers of 1000.
Result<std::uint64_t> parse_bytes(std::string_view text);

/// Every number of every command is decimal, whole or finite as its type says, and within its type: CLI11 alone takes
/// octal and hexadecimal, lets -1 wrap and huge values stick at the type's end. Call it when all flags are there.
void check_numbers(CLI::App& app);

/// A word that is not empty, as an unset shell variable would be.
CLI::Validator not_empty();

/// "1,2,3", each word of several likewise, as ids; the error names the flag.
Result<std::vector<std::int32_t>> parse_ids(const std::string& flag, const std::vector<std::string>& words);

/// --seed, of the seeds that the HTTP API takes too.
void add_seed(CLI::App& command, std::optional<std::uint64_t>& seed, const std::string& help);

/// A flag whose value is a size; help shows `shown` as its default.
void add_bytes(CLI::App& command, const std::string& name, std::uint64_t& bytes, const std::string& help,
               const std::string& shown);

/// For flags that are whole numbers: the library takes -1 for the largest, and the largest for what is larger.
CLI::Validator whole_number(std::uint64_t least = 0, std::uint64_t most = ~std::uint64_t{0});

/// For flags that are numbers: the library's range lets NaN pass.
CLI::Validator number_within(double least, double most);

/// The environment: QUIRE_CPU names the CPU tier; QUIRE_TEST_F32=1 asks for the reference arithmetic.
Result<void> read_environment(engine::EngineOptions& options);

/// MODEL and the flags of the engine, written to `options`, which must outlive the parsing.
void add_model(CLI::App& command, std::string& path);
void add_engine_flags(CLI::App& command, engine::EngineOptions& options);
/// The flags of add_engine_flags that give these options, those that are not the default.
std::string engine_flags_text(const engine::EngineOptions& options);
/// As a shell takes it.
std::string shell_quoted(const std::string& word);
void add_sampling_flags(CLI::App& command, sampling::SamplingParams& params);

/// Opens the engine with the environment's settings, showing progress on stderr if that is a terminal.
Result<std::unique_ptr<engine::Engine>> open_engine(engine::EngineOptions options);

/// A seed for people who did not give one.
std::uint64_t draw_seed();

}  // namespace quire::cli
