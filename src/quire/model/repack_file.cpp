#include "quire/model/repack_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "quire/base/checked.h"
#include "quire/base/crc32c.h"
#include "quire/base/hash.h"
#include "quire/quant/packed_layout.h"

namespace quire::model {
namespace {

using quant::PackedMatrix;

constexpr std::size_t kPage = 4096;

struct Header {
  char magic[8];
  std::uint32_t version, num_matrices;
  ModelDigest digest;
  std::uint64_t file_bytes;
  std::uint32_t zero, crc;
};
struct Entry {
  std::uint64_t name;
  std::uint32_t dtype, crc;
  std::int64_t rows, cols;
  std::uint64_t offset, bytes;
  std::uint64_t zero[2];
};
static_assert(sizeof(Header) == 64 && sizeof(Entry) == 64);

/// Header and table as they must be; CRCs are zero until they are known.
struct Contents {
  Header header{};
  std::vector<Entry> table;

  std::size_t bytes() const { return sizeof(Header) + table.size() * sizeof(Entry); }

  std::vector<std::byte> image() const {
    std::vector<std::byte> out(bytes());
    std::memcpy(out.data(), &header, sizeof header);
    std::memcpy(out.data() + sizeof header, table.data(), table.size() * sizeof(Entry));
    return out;
  }
};

std::uint64_t name_digest(std::string_view name) {
  Digest digest;
  digest.add_text(name);
  return digest.value();
}

Contents contents_for(const ModelDigest& digest, std::span<const RepackEntry> entries) {
  Contents out;
  out.table.resize(entries.size());
  auto next = static_cast<std::size_t>(round_up(static_cast<std::int64_t>(out.bytes()), kPage));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const RepackEntry& from = entries[i];
    Entry& entry = out.table[i];
    entry.name = name_digest(from.name);
    entry.dtype = static_cast<std::uint32_t>(from.dtype);
    entry.rows = from.rows;
    entry.cols = from.cols;
    entry.offset = next;
    entry.bytes = PackedMatrix::packed_bytes(from.dtype, from.rows, from.cols);
    next += static_cast<std::size_t>(round_up(static_cast<std::int64_t>(entry.bytes), kPage));
  }
  std::memcpy(out.header.magic, "QRSTRIPS", 8);
  out.header.version = quant::kPackedLayoutVersion;
  out.header.num_matrices = static_cast<std::uint32_t>(entries.size());
  out.header.digest = digest;
  out.header.file_bytes = next;
  return out;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int fd() const { return fd_; }
  /// False if what was written could not be kept.
  bool close_now() { return close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

std::string system_error() { return std::strerror(errno); }

Result<void> check_file(const struct stat& status, const Contents& wanted) {
  if (!S_ISREG(status.st_mode)) return fail("it is no regular file");
  if (status.st_uid != geteuid()) return fail("it belongs to another user");
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return fail("other users may write to it");
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  if (bytes < wanted.bytes()) return fail("found ", bytes, " bytes, wanted ", wanted.header.file_bytes);
  return {};
}

/// `map` has at least wanted.bytes(). The CRCs that it names go into `wanted`.
Result<void> check_contents(const std::byte* map, std::uint64_t file_bytes, Contents& wanted) {
  Header found;
  std::memcpy(&found, map, sizeof found);
  if (std::memcmp(found.magic, wanted.header.magic, sizeof found.magic) != 0) return fail("it is no file of ours");
  if (found.version != wanted.header.version) {
    return fail("found layout version ", found.version, ", wanted ", wanted.header.version);
  }
  if (found.digest != wanted.header.digest) return fail("it belongs to another model file");
  if (file_bytes != wanted.header.file_bytes) {
    return fail("found ", file_bytes, " bytes, wanted ", wanted.header.file_bytes);
  }
  for (std::size_t i = 0; i < wanted.table.size(); ++i) {
    std::memcpy(&wanted.table[i].crc, map + sizeof(Header) + i * sizeof(Entry) + offsetof(Entry, crc), 4);
  }
  const std::vector<std::byte> expected = wanted.image();  // its CRC field is zero
  if (crc32c(expected) != found.crc) return fail("its header is damaged");
  found.crc = 0;
  const bool same =
      std::memcmp(&found, expected.data(), sizeof found) == 0 &&
      std::memcmp(map + sizeof found, expected.data() + sizeof found, expected.size() - sizeof found) == 0;
  if (!same) return fail("its header is damaged");
  return {};
}

/// The first matrix whose bytes are not those that were written; count if all are.
std::size_t first_damaged(const std::byte* map, const Contents& contents, ThreadPool& pool) {
  const std::size_t count = contents.table.size();
  std::atomic<std::size_t> first{count};
  pool.run([&](Worker& worker) {
    worker.for_each(static_cast<std::int64_t>(count), 1, [&](std::int64_t i) {
      const Entry& entry = contents.table[static_cast<std::size_t>(i)];
      if (crc32c({map + entry.offset, entry.bytes}) == entry.crc) return;
      std::size_t seen = first;
      while (static_cast<std::size_t>(i) < seen && !first.compare_exchange_weak(seen, static_cast<std::size_t>(i))) {
      }
    });
  });
  return first;
}

Result<void> write_all(int fd, std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return fail(system_error());
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return {};
}

Result<void> write_contents(int fd, const Contents& contents, std::span<const PackedMatrix* const> matrices) {
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const Entry& entry = contents.table[i];
    QUIRE_TRY_VOID(write_all(fd, {matrices[i]->strip(0), entry.bytes}, entry.offset));
  }
  QUIRE_TRY_VOID(write_all(fd, contents.image(), 0));
  if (ftruncate(fd, static_cast<off_t>(contents.header.file_bytes)) != 0 || fsync(fd) != 0) return fail(system_error());
  return {};
}

}  // namespace

Result<void> make_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return fail(system_error());
  return {};
}

Result<std::optional<RepackFile>> RepackFile::open(const std::string& path, const ModelDigest& digest,
                                                   std::span<const RepackEntry> entries, ThreadPool& pool) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.fd() < 0 && errno == ENOENT) return std::optional<RepackFile>();
  if (file.fd() < 0) return fail(system_error());
  struct stat status;
  if (fstat(file.fd(), &status) != 0) return fail(system_error());
  Contents contents = contents_for(digest, entries);
  QUIRE_TRY_VOID(check_file(status, contents));
  const auto bytes = static_cast<std::size_t>(status.st_size);
  void* mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.fd(), 0);
  if (mapped == MAP_FAILED) return fail(system_error());
  RepackFile out;
  out.map_ = std::shared_ptr<const std::byte>(static_cast<const std::byte*>(mapped),
                                              [mapped, bytes](const std::byte*) { munmap(mapped, bytes); });
  madvise(mapped, bytes, MADV_HUGEPAGE);  // hints: without them it is only slower
  madvise(mapped, bytes, MADV_WILLNEED);
  QUIRE_TRY_VOID(check_contents(out.map_.get(), bytes, contents));
  if (const auto damaged = first_damaged(out.map_.get(), contents, pool); damaged < entries.size()) {
    return fail("the bytes of '", entries[damaged].name, "' are damaged");
  }
  out.entries_.assign(entries.begin(), entries.end());
  for (const Entry& entry : contents.table) out.offsets_.push_back(entry.offset);
  return std::optional(std::move(out));
}

PackedMatrix RepackFile::matrix(std::size_t index) const {
  const RepackEntry& entry = entries_[index];
  return PackedMatrix::view(entry.dtype, entry.rows, entry.cols, map_.get() + offsets_[index], map_);
}

Result<void> RepackFile::write(const std::string& path, const ModelDigest& digest, std::span<const RepackEntry> entries,
                               std::span<const PackedMatrix* const> matrices, ThreadPool& pool) {
  Contents contents = contents_for(digest, entries);
  pool.run([&](Worker& worker) {
    worker.for_each(static_cast<std::int64_t>(matrices.size()), 1, [&](std::int64_t i) {
      const PackedMatrix& matrix = *matrices[static_cast<std::size_t>(i)];
      contents.table[static_cast<std::size_t>(i)].crc = crc32c({matrix.strip(0), matrix.bytes()});
    });
  });
  contents.header.crc = crc32c(contents.image());
  std::string temporary = path + ".XXXXXX";
  Descriptor file(mkostemp(temporary.data(), O_CLOEXEC));  // mode 0600
  if (file.fd() < 0) return fail(system_error());
  Result<void> written = write_contents(file.fd(), contents, matrices);
  if (written.ok() && !file.close_now()) written = fail(system_error());
  if (written.ok() && rename(temporary.c_str(), path.c_str()) != 0) written = fail(system_error());
  if (!written.ok()) unlink(temporary.c_str());
  return written;
}

}  // namespace quire::model
