#pragma once
// Beam forks: who continued whom in recorded beam searches, without tokens or texts, in a form of our own. Head,
// comments, then a search a line:
//
//     quire-beam-forks
//     # anything
//     SET WIDTH PROMPT PARENTS        name of the workload; beams; tokens of the prompt; parents of all beams
//
// PARENTS has WIDTH digits for each generated token but the first and the last: digit i of them (0-9, then a-z) is
// which of the beams before it beam i continues. All beams live until the end. The prompt's last position gives all
// beams their first tokens, so those need no digits; K and V of the last ones are never written. Errors are as for
// traces (trace.h).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/result.h"

namespace quire {

inline constexpr std::int32_t kMaxBeamForksWidth = 36;

struct BeamForks {
  std::string set;                    ///< no spaces
  std::int32_t width = 0;             ///< 2 to kMaxBeamForksWidth
  std::int32_t prompt_tokens = 0;     ///< 1 to kMaxLength
  std::vector<std::uint8_t> parents;  ///< [steps, width], each below width

  std::size_t num_steps() const { return parents.size() / static_cast<std::size_t>(width); }
  /// Of one of these tokens.
  const std::uint8_t* step(std::size_t index) const { return parents.data() + index * static_cast<std::size_t>(width); }
};

Result<std::vector<BeamForks>> read_beam_forks(std::string_view file, std::string_view text);

/// Head and comments; a comment has no line break.
void append_beam_forks_head(std::string& out, const std::vector<std::string>& comments);
/// A line.
void append_beam_forks(std::string& out, const BeamForks& search);

}  // namespace quire
