#pragma once
// GgufBuilder: writes a small GGUF image in memory, for tests, fuzz seeds and fixtures. It writes what it is told, also
// what no reader should accept; sizes and offsets are right unless a test changes them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/model/gguf_reader.h"
#include "quire/model/gguf_writer.h"
#include "quire/tensor/dtype.h"

namespace quire::model {

/// One tensor as the file describes it.
struct TensorEntry {
  std::string name;
  std::vector<std::uint64_t> dims;
  std::uint32_t type = 0;
  std::uint64_t offset = 0;  ///< from the start of the data
};

class GgufBuilder {
 public:
  std::uint32_t version = 3;
  std::uint32_t alignment = 32;  ///< of the data; the key general.alignment is written by the caller

  GgufBuilder& key_u32(std::string_view name, std::uint32_t value) { return scalar(name, 4, value); }
  GgufBuilder& key_i32(std::string_view name, std::int32_t value) { return scalar(name, 5, value); }
  GgufBuilder& key_f32(std::string_view name, float value) { return scalar(name, 6, value); }
  GgufBuilder& key_bool(std::string_view name, bool value) { return scalar(name, 7, std::uint8_t{value}); }
  GgufBuilder& key_u64(std::string_view name, std::uint64_t value) { return scalar(name, 10, value); }
  GgufBuilder& key_string(std::string_view name, std::string_view value) {
    return key_raw(name, 8, ByteWriter().string(value).take());
  }
  GgufBuilder& key_strings(std::string_view name, std::span<const std::string> values) {
    ByteWriter body;
    body.number<std::uint32_t>(8).number<std::uint64_t>(values.size());
    for (const auto& value : values) body.string(value);
    return key_raw(name, 9, body.take());
  }
  GgufBuilder& key_f32s(std::string_view name, std::span<const float> values) { return array(name, 6, values); }
  GgufBuilder& key_i32s(std::string_view name, std::span<const std::int32_t> values) { return array(name, 5, values); }
  /// A key with any type number and any bytes after it.
  GgufBuilder& key_raw(std::string_view name, std::uint32_t type, std::string_view body) {
    keys_.push_back({std::string(name), ByteWriter().number(type).raw(body).take()});
    return *this;
  }

  /// A tensor with its data [row_bytes * rows], placed after the others.
  GgufBuilder& tensor(std::string_view name, std::vector<std::uint64_t> dims, DType dtype, std::string_view bytes) {
    data_.pad_to(alignment);
    entries_.push_back({std::string(name), std::move(dims), gguf::type_number(dtype), data_.size()});
    data_.raw(bytes);
    return *this;
  }
  GgufBuilder& tensor_f32(std::string_view name, std::vector<std::uint64_t> dims, std::span<const float> values) {
    return tensor(name, std::move(dims), DType::f32,
                  {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  }
  /// Entries so far; a test may change them before build().
  std::vector<TensorEntry>& entries() { return entries_; }
  GgufBuilder& drop_key(std::string_view name) {
    std::erase_if(keys_, [&](const Key& key) { return key.name == name; });
    return *this;
  }
  /// Takes the entry out; its data stays as a gap.
  GgufBuilder& drop_tensor(std::string_view name) {
    std::erase_if(entries_, [&](const TensorEntry& entry) { return entry.name == name; });
    return *this;
  }

  std::string build() const {
    ByteWriter out;
    out.raw("GGUF").number(version).number<std::uint64_t>(entries_.size()).number<std::uint64_t>(keys_.size());
    for (const auto& key : keys_) out.string(key.name).raw(key.type_and_body);
    for (const auto& entry : entries_) {
      out.string(entry.name).number(static_cast<std::uint32_t>(entry.dims.size()));
      for (auto dim : entry.dims) out.number(dim);
      out.number(entry.type).number(entry.offset);
    }
    if (!entries_.empty()) out.pad_to(alignment);
    out.raw(ByteWriter(data_).take());
    return out.take();
  }

 private:
  template <class T>
  GgufBuilder& scalar(std::string_view name, std::uint32_t type, T value) {
    return key_raw(name, type, ByteWriter().number(value).take());
  }
  template <class T>
  GgufBuilder& array(std::string_view name, std::uint32_t type, std::span<const T> values) {
    ByteWriter body;
    body.number(type).template number<std::uint64_t>(values.size());
    for (T value : values) body.number(value);
    return key_raw(name, 9, body.take());
  }

  struct Key {
    std::string name, type_and_body;
  };

  ByteWriter data_;
  std::vector<Key> keys_;
  std::vector<TensorEntry> entries_;
};

}  // namespace quire::model
