#pragma once
// A model's packed matrices in a file, so that a later start maps them instead of packing them again. Internal to the
// model module; model.h has what callers see.
//
// Layout, little-endian: a header and a table of entries, both of 64-byte records, then the bytes of each matrix on a
// 4096-byte boundary:
//
//   header  magic "QRSTRIPS"  u32 layout version  u32 number of matrices  u8[32] model digest  u64 file bytes
//           u32 zero          u32 CRC-32C of header and table, this field as zero
//   entry   u64 digest of the name  u32 dtype  u32 CRC-32C of the bytes  i64 rows  i64 cols  u64 offset  u64 bytes
//           u8[16] zero
//
// Nothing is believed: the model says what must be in the file, so that header and table are compared with what they
// must be, and no size or offset is read from it. The CRCs of all matrices are computed before the file is used, on all
// threads: the model file, whose digest names this one, is read as a whole anyway. The layout is that of
// quant/packed_layout.h, the same on all CPUs.
//
// A file that another program shortens while it is mapped kills the process, as with any map.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/result.h"
#include "quire/base/thread_pool.h"
#include "quire/quant/packed_matrix.h"

namespace quire::model {

using ModelDigest = std::array<std::byte, 32>;

/// Makes the directory (0700) unless there is one; its parent must exist.
Result<void> make_directory(const std::string& path);

/// One matrix of the model.
struct RepackEntry {
  std::string_view name;
  DType dtype;
  std::int64_t rows, cols;
};

class RepackFile {
 public:
  /// The file of this model, whole and undamaged, mapped read-only. nullopt: there is none. An error says what is wrong
  /// with the one that is there: damaged, cut off, of another version or model, or writable by other users.
  static Result<std::optional<RepackFile>> open(const std::string& path, const ModelDigest& digest,
                                                std::span<const RepackEntry> entries, ThreadPool& pool);

  /// A view that keeps the map alive.
  quant::PackedMatrix matrix(std::size_t index) const;

  /// Puts the file there under a temporary name and renames it: nobody ever sees half of it. Mode 0600. matrices[i] is
  /// entries[i].
  static Result<void> write(const std::string& path, const ModelDigest& digest, std::span<const RepackEntry> entries,
                            std::span<const quant::PackedMatrix* const> matrices, ThreadPool& pool);

 private:
  std::vector<RepackEntry> entries_;
  std::vector<std::size_t> offsets_;
  std::shared_ptr<const std::byte> map_;
};

}  // namespace quire::model
