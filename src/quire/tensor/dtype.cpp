#include "quire/tensor/dtype.h"

#include <algorithm>

#include "quire/base/check.h"

namespace quire {

const DTypeInfo& info(DType dtype) {
  static constexpr DTypeInfo kInfo[] = {
      {"F32", 1, 4},    {"F16", 1, 2},    {"BF16", 1, 2},     {"Q4_0", 32, 18},   {"Q4_1", 32, 20},   {"Q5_0", 32, 22},
      {"Q5_1", 32, 24}, {"Q8_0", 32, 34}, {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210},
  };
  return kInfo[static_cast<int>(dtype)];
}

std::optional<DType> find_dtype(std::string_view name) {
  const auto upper = [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; };
  for (DType dtype : kAllDTypes) {
    const std::string_view known = info(dtype).name;
    if (std::equal(name.begin(), name.end(), known.begin(), known.end(),
                   [&](char a, char b) { return upper(a) == b; })) {
      return dtype;
    }
  }
  return std::nullopt;
}

std::int64_t row_bytes(DType dtype, std::int64_t elements) {
  const auto& format = info(dtype);
  QUIRE_CHECK(elements % format.block_elements == 0, format.name, " row of ", elements);
  return elements / format.block_elements * format.block_bytes;
}

}  // namespace quire
