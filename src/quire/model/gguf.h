#pragma once
// GgufFile: a model file, versions 2 and 3, read through a memory map. Every count, length and offset in it is checked
// against the bytes that are left before it is used. Errors name the key or tensor, what was found and what is
// supported. Owns the map; views into it live as long as the object. Immutable; safe to read from many threads.
// Limits: little-endian; models in one file (split models are refused by name); no arrays of arrays; arrays of at most
// 2^24 elements; alignment a power of two from 8 to 65,536. A file that another program shortens while it is mapped
// kills the process, as with any map.
// Integers of all widths are read as int64; only a value above 2^63 - 1 is kept as uint64. f32 and f64 are doubles.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "quire/base/result.h"
#include "quire/tensor/dtype.h"

namespace quire::model {

struct GgufTensor {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;  ///< as in the file: shape[0] is the length of a row; 1 to 4 dimensions, each >= 1
  const std::byte* data;            ///< into the map
  std::int64_t bytes;

  std::int64_t cols() const { return shape[0]; }
  /// The number of rows, that is the product of the other dimensions.
  std::int64_t rows() const;
};

/// An array of a GGUF key. Strings are views into the map.
struct GgufArray {
  std::variant<std::vector<std::int64_t>, std::vector<double>, std::vector<std::string_view>, std::vector<bool>> values;
  std::size_t size() const;
};

using GgufValue = std::variant<std::int64_t, std::uint64_t, double, bool, std::string_view, GgufArray>;

struct GgufKey {
  std::string_view name;
  GgufValue value;
  std::string_view record;  ///< its bytes in the file: name, type and value
};

class GgufFile {
 public:
  static Result<GgufFile> open(const std::string& path);
  /// Reads a file image held by the caller, which must outlive the object; for tests and fuzzing.
  static Result<GgufFile> parse(std::span<const std::byte> image);
  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  std::uint32_t version() const;
  std::uint32_t alignment() const;  ///< of tensors in the file
  std::uint64_t file_bytes() const;
  std::span<const std::byte> image() const;  ///< the whole file
  std::span<const GgufKey> keys() const;
  std::span<const GgufTensor> tensors() const;

  const GgufValue* find_key(std::string_view name) const;
  const GgufTensor* find_tensor(std::string_view name) const;

  /// Typed access. A missing key or one of another type is an error that says so; get_optional turns "missing" into
  /// nullopt.
  Result<std::int64_t> get_int(std::string_view name) const;
  Result<double> get_float(std::string_view name) const;
  Result<std::string_view> get_string(std::string_view name) const;
  Result<std::optional<std::int64_t>> get_optional_int(std::string_view name) const;
  Result<std::optional<double>> get_optional_float(std::string_view name) const;
  Result<std::optional<bool>> get_optional_bool(std::string_view name) const;
  Result<std::optional<std::string_view>> get_optional_string(std::string_view name) const;

  /// Lets the system take back the memory behind a tensor that was copied elsewhere; it is read again from the file
  /// when touched. Does nothing for an image held by the caller.
  void drop_pages(const GgufTensor& tensor) const;

 private:
  struct State;
  explicit GgufFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace quire::model
