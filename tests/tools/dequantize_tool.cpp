// Decodes raw blocks of a weight format to f32; what tests/differential/gguf_dequant_check.py compares.
//
//   dequantize_tool Q4_K < BLOCKS > VALUES       by quant::dequantize
//   dequantize_tool Q4_K --packed < BLOCKS > VALUES       through a PackedMatrix of 16-row strips, one block a row

#include <cstring>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "quire/quant/dequantize.h"
#include "quire/quant/packed_matrix.h"

namespace {

using namespace quire;

std::vector<float> decode(DType dtype, const std::byte* blocks, std::int64_t count, bool packed) {
  std::int64_t columns = info(dtype).block_elements;
  std::vector<float> values(static_cast<std::size_t>(count * columns));
  if (!packed) {
    quant::dequantize(dtype, blocks, count * columns, values.data());
    return values;
  }
  quant::PackedMatrix matrix = quant::PackedMatrix::pack(dtype, count, columns, blocks);
  for (std::int64_t row = 0; row < count; ++row)
    matrix.dequantize_row(row, &values[static_cast<std::size_t>(row * columns)]);
  return values;
}

}  // namespace

int main(int argc, char** argv) {
  std::optional<DType> dtype = argc >= 2 ? find_dtype(argv[1]) : std::nullopt;
  bool packed = argc == 3 && std::strcmp(argv[2], "--packed") == 0;
  if (!dtype || argc > 3 || (argc == 3 && !packed)) {
    std::cerr << "usage: dequantize_tool FORMAT [--packed] < BLOCKS > VALUES\n";
    return 2;
  }
  std::string input(std::istreambuf_iterator<char>(std::cin), {});
  std::size_t block_bytes = info(*dtype).block_bytes;
  if (input.empty() || input.size() % block_bytes != 0) {
    std::cerr << "found " << input.size() << " bytes, wanted blocks of " << block_bytes << "\n";
    return 2;
  }
  auto values = decode(*dtype, reinterpret_cast<const std::byte*>(input.data()),
                       static_cast<std::int64_t>(input.size() / block_bytes), packed);
  std::cout.write(reinterpret_cast<const char*>(values.data()),
                  static_cast<std::streamsize>(values.size() * sizeof(float)));
  return std::cout.good() ? 0 : 1;
}
