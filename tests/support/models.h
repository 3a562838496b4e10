#pragma once
// The real models that tests run, and the golden files that belong to them.

#include <cstdlib>
#include <string>
#include <string_view>

namespace quire::test {

struct RealModel {
  std::string_view test_name;  ///< in names of tests; ./dev test leaves out those of other models than the default
  std::string_view file;       ///< in the folder of models
  std::string_view golden;     ///< prefix of its files in tests/data/goldens
};

inline constexpr RealModel kSmolLm2{"SmolLm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2"};
inline constexpr RealModel kGemma270m{"Gemma270m", "gemma-3-270m.Q4_K_M.gguf", "gemma3"};
inline constexpr RealModel kQwen05b{"Qwen05b", "qwen2.5-coder-0.5b-instruct.Q4_K_M.gguf", "qwen2coder"};

/// QUIRE_MODELS, or the folder that `./dev model` fills.
inline std::string model_path(const RealModel& model) {
  const char* folder = std::getenv("QUIRE_MODELS");
  if (folder != nullptr && *folder != '\0') return std::string(folder) + "/" + std::string(model.file);
  const char* home = std::getenv("HOME");
  return std::string(home == nullptr ? "" : home) + "/.cache/quire/models/" + std::string(model.file);
}

/// tests/data/goldens/PREFIX.SUFFIX
inline std::string golden_path(const RealModel& model, std::string_view suffix) {
  return std::string(QUIRE_SOURCE_DIR) + "/tests/data/goldens/" + std::string(model.golden) + "." + std::string(suffix);
}

}  // namespace quire::test
