#include "quire/model/gguf_reader.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "quire/base/check.h"
#include "quire/base/checked.h"

namespace quire::model::gguf {
namespace {

constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;             // length, one letter, type, the smallest value
constexpr std::uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // length, one letter, n_dims, one dim, type, offset
constexpr std::string_view kSupportedTypes = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K";

/// Value types of keys, as numbered in the file.
enum class ValueType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
constexpr std::uint32_t kNumValueTypes = 13;
constexpr std::string_view kValueTypeNames[kNumValueTypes] = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                                              "int32",  "float32", "bool",   "string", "array",
                                                              "uint64", "int64",   "float64"};

std::string_view name_of(ValueType type) { return kValueTypeNames[static_cast<std::uint32_t>(type)]; }

/// The least bytes a value of the type takes.
std::uint64_t min_bytes(ValueType type) {
  static constexpr std::uint8_t kBytes[kNumValueTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
  return kBytes[static_cast<std::uint32_t>(type)];
}

/// Tensor types by their number in the file. Those without a DType are known by name only.
struct TensorType {
  std::uint32_t number;
  std::string_view name;
  std::optional<DType> dtype = std::nullopt;
};
constexpr TensorType kTensorTypes[] = {
    {0, "F32", DType::f32},
    {1, "F16", DType::f16},
    {2, "Q4_0", DType::q4_0},
    {3, "Q4_1", DType::q4_1},
    {6, "Q5_0", DType::q5_0},
    {7, "Q5_1", DType::q5_1},
    {8, "Q8_0", DType::q8_0},
    {9, "Q8_1"},
    {10, "Q2_K"},
    {11, "Q3_K"},
    {12, "Q4_K", DType::q4_k},
    {13, "Q5_K", DType::q5_k},
    {14, "Q6_K", DType::q6_k},
    {15, "Q8_K"},
    {16, "IQ2_XXS"},
    {17, "IQ2_XS"},
    {18, "IQ3_XXS"},
    {19, "IQ1_S"},
    {20, "IQ4_NL"},
    {21, "IQ3_S"},
    {22, "IQ2_S"},
    {23, "IQ4_XS"},
    {24, "I8"},
    {25, "I16"},
    {26, "I32"},
    {27, "I64"},
    {28, "F64"},
    {29, "IQ1_M"},
    {30, "BF16", DType::bf16},
    {34, "TQ1_0"},
    {35, "TQ2_0"},
    {39, "MXFP4"},
};

/// Types that older versions of the format had and newer ones took out.
bool is_removed_type(std::uint32_t number) {
  return number == 4 || number == 5 || (number >= 31 && number <= 33) || (number >= 36 && number <= 38);
}

/// A cursor over the image. Reads fail by value, so that the caller can say what it was reading.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> image) : image_(image) {}

  std::uint64_t offset() const { return offset_; }
  std::uint64_t left() const { return image_.size() - offset_; }

  template <class T>
  std::optional<T> number() {
    if (left() < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, image_.data() + offset_, sizeof value);
    offset_ += sizeof value;
    return value;
  }

  std::optional<std::string_view> bytes(std::uint64_t count) {
    if (left() < count) return std::nullopt;
    std::string_view text(reinterpret_cast<const char*>(image_.data()) + offset_, count);
    offset_ += count;
    return text;
  }

 private:
  std::span<const std::byte> image_;
  std::uint64_t offset_ = 0;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> image) : image_(image), cursor_(image) {}

  Result<Contents> read() {
    QUIRE_TRY_VOID(read_header());
    QUIRE_TRY_VOID(read_keys());
    QUIRE_TRY_VOID(check_split());
    QUIRE_TRY_VOID(read_tensors());
    QUIRE_TRY_VOID(place_tensors());
    contents_.alignment = static_cast<std::uint32_t>(alignment_);
    return std::move(contents_);
  }

 private:
  Error cut_off(const std::string& what) const {
    return fail("file ends at byte ", image_.size(), ", in the middle of ", what);
  }

  template <class T>
  Result<T> number(const std::string& what) {
    if (auto value = cursor_.number<T>()) return *value;
    return cut_off(what);
  }

  Result<std::string_view> string(const std::string& what) {
    std::uint64_t at = cursor_.offset();
    QUIRE_TRY(auto length, number<std::uint64_t>(cat("the length of ", what)));
    if (auto text = cursor_.bytes(length)) return *text;
    return fail(what, " at byte ", at, ": found a length of ", length, ", but only ", cursor_.left(),
                " bytes are left in the file");
  }

  Result<void> read_header() {
    auto magic = cursor_.bytes(4);
    if (!magic) return fail("found ", image_.size(), " bytes, which is too short for a GGUF file");
    if (*magic != "GGUF") return wrong_magic(*magic);
    QUIRE_TRY(auto version, number<std::uint32_t>("the version"));
    if (version == 0x02000000 || version == 0x03000000) {
      return fail("a big-endian GGUF file (version ", version >> 24, "); supported: little-endian files");
    }
    if (version != 2 && version != 3) return fail("GGUF version ", version, "; supported: 2 and 3");
    contents_.version = version;
    QUIRE_TRY(num_tensors_, number<std::uint64_t>("the number of tensors"));
    QUIRE_TRY(num_keys_, number<std::uint64_t>("the number of keys"));
    if (num_tensors_ > cursor_.left() / kMinTensorBytes) {
      return fail("tensor count at byte 8: found ", num_tensors_, ", more than the ", cursor_.left(),
                  " bytes after it can hold");
    }
    if (num_keys_ > cursor_.left() / kMinKeyBytes) {
      return fail("key count at byte 16: found ", num_keys_, ", more than the ", cursor_.left(),
                  " bytes after it can hold");
    }
    return {};
  }

  Error wrong_magic(std::string_view magic) const {
    std::string_view start(reinterpret_cast<const char*>(image_.data()), std::min<std::size_t>(image_.size(), 64));
    if (start.starts_with("version https://")) {
      return fail("this looks like a Git LFS pointer, not a model: fetch the file itself (git lfs pull)");
    }
    if (start.starts_with("<!DOCTYPE") || start.starts_with("<html")) {
      return fail("this looks like a web page, not a model: download the file itself");
    }
    if (magic == "FUGG") return fail("a big-endian GGUF file; supported: little-endian files");
    if (magic == "lmgg" || magic == "fmgg" || magic == "tjgg") {
      return fail("a GGML file from before GGUF; supported: GGUF versions 2 and 3");
    }
    return fail("found ", quoted(magic), " at byte 0, wanted 'GGUF': not a GGUF file");
  }

  Result<void> read_keys() {
    contents_.keys.reserve(num_keys_);
    for (std::uint64_t i = 0; i < num_keys_; ++i) {
      std::uint64_t at = cursor_.offset();
      QUIRE_TRY(auto name, string(cat("the name of key ", i)));
      if (name.empty()) return fail("key ", i, " at byte ", at, ": found an empty name");
      QUIRE_TRY(auto value, read_value(cat("key ", quoted(name))));
      std::string_view record(reinterpret_cast<const char*>(image_.data()) + at, cursor_.offset() - at);
      contents_.keys.push_back({name, std::move(value), record});
    }
    std::vector<std::string_view> names;
    names.reserve(contents_.keys.size());
    for (const auto& key : contents_.keys) names.push_back(key.name);
    if (auto twice = first_duplicate(std::move(names))) return fail("key ", quoted(*twice), " occurs more than once");
    return {};
  }

  static std::optional<std::string_view> first_duplicate(std::vector<std::string_view> names) {
    std::sort(names.begin(), names.end());
    auto at = std::adjacent_find(names.begin(), names.end());
    if (at == names.end()) return std::nullopt;
    return *at;
  }

  Result<ValueType> value_type(const std::string& what) {
    std::uint64_t at = cursor_.offset();
    QUIRE_TRY(auto type, number<std::uint32_t>(cat("the type of ", what)));
    if (type >= kNumValueTypes) {
      return fail(what, " at byte ", at, ": found value type ", type, ", supported: 0 to ", kNumValueTypes - 1);
    }
    return static_cast<ValueType>(type);
  }

  Result<GgufValue> read_value(const std::string& what) {
    QUIRE_TRY(auto type, value_type(what));
    if (what == "key 'general.alignment'") return read_alignment(type);
    switch (type) {
      case ValueType::f32:
        return scalar<float, double>(what);
      case ValueType::f64:
        return scalar<double, double>(what);
      case ValueType::boolean:
        return boolean(what);
      case ValueType::string: {
        QUIRE_TRY(auto text, string(what));
        return GgufValue(text);
      }
      case ValueType::array:
        return read_array(what);
      default:
        return integer(type, what);
    }
  }

  Result<GgufValue> read_alignment(ValueType type) {
    if (type != ValueType::u32) return fail("key 'general.alignment': found type ", name_of(type), ", wanted uint32");
    QUIRE_TRY(auto value, number<std::uint32_t>("key 'general.alignment'"));
    bool power_of_two = value != 0 && (value & (value - 1)) == 0;
    if (!power_of_two || value < kMinAlignment || value > kMaxAlignment) {
      return fail("key 'general.alignment': found ", value, ", supported: powers of two from ", kMinAlignment, " to ",
                  kMaxAlignment);
    }
    alignment_ = value;
    return GgufValue(static_cast<std::int64_t>(value));
  }

  template <class Stored, class Held>
  Result<GgufValue> scalar(const std::string& what) {
    QUIRE_TRY(auto value, number<Stored>(what));
    return GgufValue(static_cast<Held>(value));
  }

  Result<GgufValue> boolean(const std::string& what) {
    std::uint64_t at = cursor_.offset();
    QUIRE_TRY(auto value, number<std::uint8_t>(what));
    if (value > 1) return fail(what, " at byte ", at, ": found ", value, ", wanted a bool (0 or 1)");
    return GgufValue(value == 1);
  }

  Result<GgufValue> integer(ValueType type, const std::string& what) {
    switch (type) {
      case ValueType::u8:
        return scalar<std::uint8_t, std::int64_t>(what);
      case ValueType::i8:
        return scalar<std::int8_t, std::int64_t>(what);
      case ValueType::u16:
        return scalar<std::uint16_t, std::int64_t>(what);
      case ValueType::i16:
        return scalar<std::int16_t, std::int64_t>(what);
      case ValueType::u32:
        return scalar<std::uint32_t, std::int64_t>(what);
      case ValueType::i32:
        return scalar<std::int32_t, std::int64_t>(what);
      case ValueType::i64:
        return scalar<std::int64_t, std::int64_t>(what);
      default:
        break;
    }
    QUIRE_TRY(auto value, number<std::uint64_t>(what));
    if (value > static_cast<std::uint64_t>(INT64_MAX)) return GgufValue(value);
    return GgufValue(static_cast<std::int64_t>(value));
  }

  Result<GgufValue> read_array(const std::string& what) {
    QUIRE_TRY(auto type, value_type(cat("the elements of ", what)));
    if (type == ValueType::array) return fail(what, ": found an array of arrays, which is not supported");
    std::uint64_t at = cursor_.offset();
    QUIRE_TRY(auto count, number<std::uint64_t>(cat("the length of ", what)));
    if (count > cursor_.left() / min_bytes(type)) {
      return fail(what, " at byte ", at, ": found an array of ", count, " elements of type ", name_of(type),
                  ", more than the ", cursor_.left(), " bytes after it can hold");
    }
    if (count > kMaxArrayElements) {
      return fail(what, " at byte ", at, ": found an array of ", count, " elements, supported: up to ",
                  kMaxArrayElements);
    }
    switch (type) {
      case ValueType::f32:
      case ValueType::f64:
        return elements<double>(type, count, what);
      case ValueType::boolean:
        return elements<bool>(type, count, what);
      case ValueType::string:
        return strings(count, what);
      default:
        return elements<std::int64_t>(type, count, what);
    }
  }

  /// Scalars of the type, which all become Held.
  template <class Held>
  Result<GgufValue> elements(ValueType type, std::uint64_t count, const std::string& what) {
    std::vector<Held> values;
    values.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      Result<GgufValue> value = type == ValueType::f32       ? scalar<float, double>(what)
                                : type == ValueType::f64     ? scalar<double, double>(what)
                                : type == ValueType::boolean ? boolean(what)
                                                             : integer(type, what);
      if (!value.ok()) return value.error();
      const Held* held = std::get_if<Held>(&*value);
      if (held == nullptr) return fail(what, ": found an element above 2^63 - 1, which is not supported");
      values.push_back(*held);
    }
    return GgufValue(GgufArray{std::move(values)});
  }

  Result<GgufValue> strings(std::uint64_t count, const std::string& what) {
    std::vector<std::string_view> values;
    values.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint64_t at = cursor_.offset();
      auto length = cursor_.number<std::uint64_t>();
      if (!length) return cut_off(cat("element ", i, " of ", what));
      auto text = cursor_.bytes(*length);
      if (!text) {
        return fail("element ", i, " of ", what, " at byte ", at, ": found a length of ", *length, ", but only ",
                    cursor_.left(), " bytes are left in the file");
      }
      values.push_back(*text);
    }
    return GgufValue(GgufArray{std::move(values)});
  }

  const std::int64_t* integer_key(std::string_view name) const {
    for (const auto& key : contents_.keys) {
      if (key.name == name) return std::get_if<std::int64_t>(&key.value);
    }
    return nullptr;
  }

  Result<void> check_split() const {
    const std::int64_t* count = integer_key("split.count");
    if (count == nullptr || *count <= 1) return {};
    const std::int64_t* number = integer_key("split.no");
    return fail(
        "this is part ", number == nullptr ? std::string("?") : cat(*number + 1), " of ", *count,
        " of a split model (key 'split.count'); supported: models in one file. Join all ", *count,
        " parts with `llama-gguf-split --merge FIRST_PART OUT` and pass OUT (plain concatenation does not work)");
  }

  Result<void> read_tensors() {
    contents_.tensors.reserve(num_tensors_);
    offsets_.reserve(num_tensors_);
    for (std::uint64_t i = 0; i < num_tensors_; ++i) QUIRE_TRY_VOID(read_tensor(i));
    std::vector<std::string_view> names;
    names.reserve(contents_.tensors.size());
    for (const auto& tensor : contents_.tensors) names.push_back(tensor.name);
    if (auto twice = first_duplicate(std::move(names))) {
      return fail("tensor ", quoted(*twice), " occurs more than once");
    }
    return {};
  }

  Result<void> read_tensor(std::uint64_t index) {
    std::uint64_t at = cursor_.offset();
    QUIRE_TRY(auto name, string(cat("the name of tensor ", index)));
    if (name.empty()) return fail("tensor ", index, " at byte ", at, ": found an empty name");
    std::string what = cat("tensor ", quoted(name));
    QUIRE_TRY(auto num_dims, number<std::uint32_t>(what));
    if (num_dims < 1 || num_dims > 4) {
      return fail(what, " at byte ", at, ": found ", num_dims, " dimensions, supported: 1 to 4");
    }
    std::vector<std::int64_t> shape;
    std::uint64_t num_elements = 1;
    for (std::uint32_t d = 0; d < num_dims; ++d) {
      QUIRE_TRY(auto dim, number<std::uint64_t>(what));
      auto product = checked_mul(num_elements, dim);
      if (dim == 0 || !product || *product > static_cast<std::uint64_t>(INT64_MAX)) {
        return fail(what, " at byte ", at, ": found dimension ", d, " = ", dim,
                    dim == 0 ? ", wanted at least 1" : ", with which the number of elements overflows");
      }
      num_elements = *product;
      shape.push_back(static_cast<std::int64_t>(dim));
    }
    QUIRE_TRY(auto type, number<std::uint32_t>(what));
    QUIRE_TRY(auto offset, number<std::uint64_t>(what));
    QUIRE_TRY(auto dtype, tensor_dtype(type, what));
    QUIRE_TRY(auto bytes, tensor_bytes(dtype, num_elements, static_cast<std::uint64_t>(shape[0]), what));
    contents_.tensors.push_back({std::string(name), dtype, std::move(shape), nullptr, bytes});
    offsets_.push_back(offset);
    return {};
  }

  static Result<DType> tensor_dtype(std::uint32_t number, const std::string& what) {
    for (const auto& type : kTensorTypes) {
      if (type.number != number) continue;
      if (type.dtype) return *type.dtype;
      return fail(what, ": found type ", number, " (", type.name, "), supported: ", kSupportedTypes);
    }
    return fail(
        what, ": found type ", number,
        is_removed_type(number) ? ", which was removed from the format; supported: " : " (unknown), supported: ",
        kSupportedTypes);
  }

  static Result<std::int64_t> tensor_bytes(DType dtype, std::uint64_t num_elements, std::uint64_t cols,
                                           const std::string& what) {
    const auto& format = info(dtype);
    if (cols % format.block_elements != 0) {
      return fail(what, ": found rows of ", cols, " elements, wanted a multiple of ", format.block_elements,
                  " for type ", format.name);
    }
    auto bytes = checked_mul(num_elements / format.block_elements, format.block_bytes);
    if (!bytes || *bytes > static_cast<std::uint64_t>(INT64_MAX)) {
      return fail(what, ": found ", num_elements, " elements of type ", format.name, ", whose size overflows");
    }
    return static_cast<std::int64_t>(*bytes);
  }

  Result<void> place_tensors() {
    if (contents_.tensors.empty()) return {};
    auto padded = checked_add(cursor_.offset(), alignment_ - 1);
    std::uint64_t data_begin = *padded / alignment_ * alignment_;  // an offset within a real file: cannot overflow
    std::vector<std::size_t> order(contents_.tensors.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return offsets_[a] < offsets_[b]; });
    const GgufTensor* previous = nullptr;
    std::uint64_t previous_end = 0;
    for (std::size_t index : order) {
      GgufTensor& tensor = contents_.tensors[index];
      std::uint64_t offset = offsets_[index];
      if (offset % alignment_ != 0) {
        return fail("tensor ", quoted(tensor.name), ": found offset ", offset, ", wanted a multiple of the alignment ",
                    alignment_);
      }
      auto begin = checked_add(data_begin, offset);
      auto end = begin ? checked_add(*begin, static_cast<std::uint64_t>(tensor.bytes)) : std::nullopt;
      if (!end || *end > image_.size()) {
        return fail("tensor ", quoted(tensor.name), " ends past the end of the file: offset ", offset, " + ",
                    tensor.bytes, " bytes, from byte ", data_begin, " of a file of ", image_.size(), " bytes");
      }
      if (previous != nullptr && *begin < previous_end) {
        return fail("tensor ", quoted(tensor.name), " at offset ", offset, " overlaps tensor ", quoted(previous->name));
      }
      tensor.data = image_.data() + *begin;
      previous = &tensor;
      previous_end = *end;
    }
    return {};
  }

  std::span<const std::byte> image_;
  Cursor cursor_;
  Contents contents_;
  std::vector<std::uint64_t> offsets_;  ///< [tensors], as in the file
  std::uint64_t num_tensors_ = 0, num_keys_ = 0;
  std::uint64_t alignment_ = kDefaultAlignment;
};

}  // namespace

Result<Contents> read_contents(std::span<const std::byte> image) { return Reader(image).read(); }

std::uint32_t type_number(DType dtype) {
  const auto* known = std::find_if(std::begin(kTensorTypes), std::end(kTensorTypes),
                                   [dtype](const TensorType& type) { return type.dtype == dtype; });
  QUIRE_CHECK(known != std::end(kTensorTypes), info(dtype).name);
  return known->number;
}

std::string quoted(std::string_view name) {
  constexpr std::size_t kMaxShown = 80;
  std::string out = "'";
  for (char c : name.substr(0, kMaxShown)) {
    auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      out += c;
    } else {
      static constexpr char kHex[] = "0123456789abcdef";
      out += cat("\\x", kHex[byte >> 4], kHex[byte & 15]);
    }
  }
  return out + (name.size() > kMaxShown ? "...'" : "'");
}

}  // namespace quire::model::gguf
