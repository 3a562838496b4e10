#include "quire/model/gguf_writer.h"

#include "quire/base/checked.h"
#include "quire/model/gguf_reader.h"

namespace quire::model {

std::int64_t PlannedTensor::bytes() const {
  std::int64_t rows = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) rows *= shape[i];
  return rows * row_bytes(dtype, shape[0]);
}

std::string key_record(std::string_view name, std::uint32_t value) {
  constexpr std::uint32_t kUint32 = 4;
  return ByteWriter().string(name).number(kUint32).number(value).take();
}

std::string gguf_header(std::span<const std::string> key_records, std::span<const PlannedTensor> tensors,
                        std::uint32_t alignment) {
  constexpr std::uint32_t kVersion = 3;
  ByteWriter out;
  out.raw("GGUF").number(kVersion).number<std::uint64_t>(tensors.size()).number<std::uint64_t>(key_records.size());
  for (const std::string& record : key_records) out.raw(record);
  std::int64_t offset = 0;
  for (const PlannedTensor& tensor : tensors) {
    out.string(tensor.name).number(static_cast<std::uint32_t>(tensor.shape.size()));
    for (std::int64_t dim : tensor.shape) out.number(dim);
    out.number(gguf::type_number(tensor.dtype)).number(offset);
    offset += round_up(tensor.bytes(), alignment);
  }
  out.pad_to(alignment);
  return out.take();
}

}  // namespace quire::model
