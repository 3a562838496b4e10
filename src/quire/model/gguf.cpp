#include "quire/model/gguf.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "quire/base/checked.h"
#include "quire/model/gguf_reader.h"

namespace quire::model {

struct GgufFile::State {
  std::span<const std::byte> image;
  void* map = nullptr;  ///< null when the caller holds the image
  gguf::Contents contents;
  std::vector<std::uint32_t> key_order;     ///< indices sorted by name
  std::vector<std::uint32_t> tensor_order;  ///< indices sorted by name

  ~State() {
    if (map != nullptr) munmap(map, image.size());
  }
};

namespace {

template <class Items>
std::vector<std::uint32_t> order_by_name(const Items& items) {
  std::vector<std::uint32_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::uint32_t>(i);
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return items[a].name < items[b].name; });
  return order;
}

template <class Items>
auto find_by_name(const Items& items, const std::vector<std::uint32_t>& order, std::string_view name)
    -> decltype(items.data()) {
  auto at = std::lower_bound(order.begin(), order.end(), name,
                             [&](auto index, std::string_view wanted) { return items[index].name < wanted; });
  if (at == order.end() || items[*at].name != name) return nullptr;
  return &items[*at];
}

std::string_view kind_of(const GgufValue& value) {
  static constexpr std::string_view kKinds[] = {
      "an integer", "an integer above 2^63 - 1", "a float", "a bool", "a string", "an array"};
  return kKinds[value.index()];
}

template <class T>
struct Wanted;
template <>
struct Wanted<std::int64_t> {
  static constexpr std::string_view kName = "an integer";
};
template <>
struct Wanted<double> {
  static constexpr std::string_view kName = "a float";
};
template <>
struct Wanted<bool> {
  static constexpr std::string_view kName = "a bool";
};
template <>
struct Wanted<std::string_view> {
  static constexpr std::string_view kName = "a string";
};

template <class T>
Result<std::optional<T>> get_optional(const GgufFile& file, std::string_view name) {
  const GgufValue* value = file.find_key(name);
  if (value == nullptr) return std::optional<T>();
  if (const T* typed = std::get_if<T>(value)) return std::optional<T>(*typed);
  return fail("key '", name, "': found ", kind_of(*value), ", wanted ", Wanted<T>::kName);
}

template <class T>
Result<T> get_required(const GgufFile& file, std::string_view name) {
  QUIRE_TRY(std::optional<T> value, get_optional<T>(file, name));
  if (!value) return fail("key '", name, "' is missing; wanted ", Wanted<T>::kName);
  return *value;
}

/// A file descriptor that closes itself.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

std::int64_t GgufTensor::rows() const {
  std::int64_t rows = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) rows *= shape[i];
  return rows;
}

std::size_t GgufArray::size() const {
  return std::visit([](const auto& items) { return items.size(); }, values);
}

GgufFile::GgufFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

Result<GgufFile> GgufFile::open(const std::string& path) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return fail("cannot open '", path, "': ", std::strerror(errno));
  struct stat status;
  if (fstat(file.fd, &status) != 0) return fail("cannot read '", path, "': ", std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return fail("'", path, "' is not a regular file; wanted a GGUF file");
  if (status.st_size == 0) return fail("'", path, "' is empty; wanted a GGUF file");
  auto bytes = static_cast<std::size_t>(status.st_size);
  void* map = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (map == MAP_FAILED) return fail("cannot map '", path, "' (", bytes, " bytes): ", std::strerror(errno));
  auto state = std::make_unique<State>();
  state->map = map;
  state->image = {static_cast<const std::byte*>(map), bytes};
  auto contents = gguf::read_contents(state->image);
  if (!contents.ok()) return fail("'", path, "': ", contents.error().message);
  state->contents = *std::move(contents);
  state->key_order = order_by_name(state->contents.keys);
  state->tensor_order = order_by_name(state->contents.tensors);
  return GgufFile(std::move(state));
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> image) {
  auto state = std::make_unique<State>();
  state->image = image;
  QUIRE_TRY(state->contents, gguf::read_contents(image));
  state->key_order = order_by_name(state->contents.keys);
  state->tensor_order = order_by_name(state->contents.tensors);
  return GgufFile(std::move(state));
}

void GgufFile::drop_pages(const GgufTensor& tensor) const {
  if (state_->map == nullptr) return;
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  auto begin = (reinterpret_cast<std::uintptr_t>(tensor.data) + page - 1) / page * page;
  auto end = (reinterpret_cast<std::uintptr_t>(tensor.data) + static_cast<std::uintptr_t>(tensor.bytes)) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

std::uint32_t GgufFile::version() const { return state_->contents.version; }
std::uint32_t GgufFile::alignment() const { return state_->contents.alignment; }
std::uint64_t GgufFile::file_bytes() const { return state_->image.size(); }
std::span<const std::byte> GgufFile::image() const { return state_->image; }
std::span<const GgufKey> GgufFile::keys() const { return state_->contents.keys; }
std::span<const GgufTensor> GgufFile::tensors() const { return state_->contents.tensors; }

const GgufValue* GgufFile::find_key(std::string_view name) const {
  const GgufKey* key = find_by_name(state_->contents.keys, state_->key_order, name);
  return key == nullptr ? nullptr : &key->value;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  return find_by_name(state_->contents.tensors, state_->tensor_order, name);
}

Result<std::int64_t> GgufFile::get_int(std::string_view name) const { return get_required<std::int64_t>(*this, name); }
Result<double> GgufFile::get_float(std::string_view name) const { return get_required<double>(*this, name); }
Result<std::string_view> GgufFile::get_string(std::string_view name) const {
  return get_required<std::string_view>(*this, name);
}
Result<std::optional<std::int64_t>> GgufFile::get_optional_int(std::string_view name) const {
  return get_optional<std::int64_t>(*this, name);
}
Result<std::optional<double>> GgufFile::get_optional_float(std::string_view name) const {
  return get_optional<double>(*this, name);
}
Result<std::optional<bool>> GgufFile::get_optional_bool(std::string_view name) const {
  return get_optional<bool>(*this, name);
}
Result<std::optional<std::string_view>> GgufFile::get_optional_string(std::string_view name) const {
  return get_optional<std::string_view>(*this, name);
}

}  // namespace quire::model
