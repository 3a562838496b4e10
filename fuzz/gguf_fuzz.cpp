// Fuzzes the GGUF reader and the model configuration read from it: any bytes are read or refused, never a crash.

#include <cstddef>
#include <cstdint>
#include <span>

#include "quire/model/config.h"
#include "quire/model/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto file = quire::model::GgufFile::parse(std::as_bytes(std::span(data, size)));
  if (!file.ok()) return 0;
  // Touch the first and last byte of each tensor: both must lie within the input.
  unsigned sum = 0;
  for (const auto& tensor : file->tensors()) {
    sum += static_cast<unsigned>(tensor.data[0]) + static_cast<unsigned>(tensor.data[tensor.bytes - 1]);
  }
  auto config = quire::model::read_config(*file);
  [[maybe_unused]] volatile unsigned sink = sum + (config.ok() ? 1 : 0);
  return 0;
}
