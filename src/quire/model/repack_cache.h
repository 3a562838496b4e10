#pragma once
// Keeping packed weights on disk: which file belongs to a model, and what became of it while loading. Optional; the
// bits of every result are the same with and without it.
//
// One file a model, DIR/<first 32 hex digits of the model digest>.strips, mode 0600, in a directory that is made (0700)
// if it is missing. One that is damaged, cut off, foreign or of an older layout is ignored, with a note, and replaced.
// No file is a reason not to start. Decoded weights (f32_weights) are not kept. A process that is killed while it
// writes leaves a file *.strips.XXXXXX behind, which nobody reads.

#include <array>
#include <cstddef>
#include <string>

namespace quire::model {

struct RepackCache {
  std::string dir;                     ///< empty: no cache
  std::array<std::byte, 32> digest{};  ///< of the whole model file
};

struct RepackReport {
  enum class Outcome {
    off,          ///< nothing was looked for: the weights were packed
    used,         ///< the file was there, checked and mapped
    written,      ///< the weights were packed and the file was written
    not_written,  ///< the weights were packed; `note` says why the file could not be written
  } outcome = Outcome::off;
  std::string path;  ///< of the file; empty if off
  std::string note;  ///< why a file was ignored or could not be written; may be empty
};

std::string repack_path(const RepackCache& cache);

}  // namespace quire::model
