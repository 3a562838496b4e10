#include <cstdlib>
#include <filesystem>

#include "quire/base/cat.h"
#include "quire/base/hash.h"
#include "quire/engine/cache_domain.h"
#include "quire/engine/memory.h"
#include "quire/engine/sha256_hasher.h"
#include "quire/model/config.h"
#include "quire/model/gguf.h"
#include "quire/planning/calibration.h"
#include "quire/report/report.h"

namespace quire::planning {
namespace {

std::string hex(std::span<const std::byte> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::byte byte : bytes) {
    text += kDigits[static_cast<unsigned>(byte) >> 4];
    text += kDigits[static_cast<unsigned>(byte) & 15];
  }
  return text;
}

}  // namespace

Result<CalibrationSetting> describe_setting(const engine::EngineOptions& options) {
  QUIRE_TRY(const CpuChoice cpu, choose_cpu_tier(options.cpu_tier));
  QUIRE_TRY(const model::GgufFile file, model::GgufFile::open(options.model_path));
  QUIRE_TRY(const model::ModelConfig config, model::read_config(file));
  QUIRE_TRY(const auto hasher, engine::Sha256Hasher::create());
  const int threads = options.threads == 0 ? engine::available_cores() : options.threads;
  ThreadPool pool(threads);
  CalibrationSetting setting;
  setting.cpu = report::cpu_name();
  setting.cpu_tier = std::string(to_string(cpu.tier));
  setting.threads = threads;
  setting.model = cat(config.name.empty() ? config.architecture : config.name, ", ", file.file_bytes(), " bytes");
  setting.model_digest = hex(engine::model_digest(*hasher, file.image(), pool).bytes);
  setting.kv_type = options.reference_arithmetic ? "f32" : options.kv_type;
  setting.block_size = options.block_size;
  setting.quire_version = QUIRE_VERSION;
  return setting;
}

Result<void> check_setting(const CalibrationSetting& found, const CalibrationSetting& wanted) {
  const auto differs = [](std::string_view what, const auto& has, const auto& wants) -> Result<void> {
    if (has == wants) return {};
    return fail("the calibration is of another ", what, ": found ", has, ", wanted ", wants,
                "; `quire calibrate` makes a new one");
  };
  QUIRE_TRY_VOID(differs("version of Quire", found.quire_version, wanted.quire_version));
  QUIRE_TRY_VOID(differs("CPU", found.cpu, wanted.cpu));
  QUIRE_TRY_VOID(differs("CPU tier", found.cpu_tier, wanted.cpu_tier));
  QUIRE_TRY_VOID(differs("number of threads", found.threads, wanted.threads));
  QUIRE_TRY_VOID(differs("model", found.model, wanted.model));
  QUIRE_TRY_VOID(differs("model file", found.model_digest, wanted.model_digest));
  QUIRE_TRY_VOID(differs("KV type", found.kv_type, wanted.kv_type));
  return differs("block size", found.block_size, wanted.block_size);
}

std::string default_calibration_path(const CalibrationSetting& setting) {
  Digest digest;
  for (const std::string* text : {&setting.cpu, &setting.cpu_tier, &setting.model, &setting.model_digest,
                                  &setting.kv_type, &setting.quire_version})
    digest.add_text(*text);
  digest.add(static_cast<std::uint64_t>(setting.threads));
  digest.add(static_cast<std::uint64_t>(setting.block_size));
  const std::uint64_t value = digest.value();
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string root = cache != nullptr && *cache != '\0' ? cache : cat(home == nullptr ? "." : home, "/.cache");
  return cat(root, "/quire/calibrations/", hex(std::as_bytes(std::span(&value, 1))), ".json");
}

}  // namespace quire::planning
