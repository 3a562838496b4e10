#pragma once
// Writing a GGUF file, version 3: all that stands before the tensors' data. The data follow in the same order, each
// tensor padded to the alignment.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/tensor/dtype.h"

namespace quire::model {

/// Bytes in little-endian order, appended.
class ByteWriter {
 public:
  template <class T>
  ByteWriter& number(T value) {
    const char* bytes = reinterpret_cast<const char*>(&value);
    out_.append(bytes, sizeof value);
    return *this;
  }
  ByteWriter& string(std::string_view text) { return number<std::uint64_t>(text.size()), raw(text); }
  ByteWriter& raw(std::string_view bytes) { return out_.append(bytes), *this; }
  void pad_to(std::size_t multiple) { out_.resize((out_.size() + multiple - 1) / multiple * multiple); }
  std::size_t size() const { return out_.size(); }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

/// A tensor that is to be written.
struct PlannedTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;  ///< as GgufTensor::shape; shape[0] a multiple of the format's block

  std::int64_t bytes() const;
};

/// A key of type uint32, as GgufKey::record.
std::string key_record(std::string_view name, std::uint32_t value);

/// Magic, counts, keys, names, shapes and offsets, padded to the place of the first tensor. A file without the key
/// general.alignment has alignment 32.
std::string gguf_header(std::span<const std::string> key_records, std::span<const PlannedTensor> tensors,
                        std::uint32_t alignment);

}  // namespace quire::model
