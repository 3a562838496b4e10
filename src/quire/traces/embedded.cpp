// The data that commands and tests need, in the program itself: files of data/, by the assembler.

#include "quire/traces/bytes.h"
#include "quire/traces/trace_file.h"

#define QUIRE_EMBED(symbol, file)                                                                                  \
  __asm__(".section .rodata\n.balign 16\n.global " #symbol "_begin\n" #symbol "_begin:\n.incbin \"" QUIRE_DATA_DIR \
          "/" file "\"\n.global " #symbol "_end\n" #symbol "_end:\n.byte 0\n.previous\n");                         \
  extern "C" const char symbol##_begin[];                                                                          \
  extern "C" const char symbol##_end[]

QUIRE_EMBED(quire_data_conversation, "mooncake-conversation.blocks.gz");
QUIRE_EMBED(quire_data_synthetic, "mooncake-synthetic.blocks.gz");
QUIRE_EMBED(quire_data_sharegpt, "sharegpt-first-turns.csv.gz");
QUIRE_EMBED(quire_data_beams, "beam-forks.gz");

namespace quire {
namespace {

std::string_view between(const char* begin, const char* end) { return {begin, static_cast<std::size_t>(end - begin)}; }

}  // namespace

Result<Trace> embedded_trace(std::string_view name) {
  if (name == "conversation")
    return read_trace("mooncake-conversation", between(quire_data_conversation_begin, quire_data_conversation_end));
  if (name == "synthetic")
    return read_trace("mooncake-synthetic", between(quire_data_synthetic_begin, quire_data_synthetic_end));
  if (name == "sharegpt")
    return read_trace("sharegpt-first-turns", between(quire_data_sharegpt_begin, quire_data_sharegpt_end));
  return fail("found '", name, "', wanted conversation, synthetic or sharegpt");
}

Result<std::vector<BeamForks>> embedded_beam_searches() {
  QUIRE_TRY(const std::string text, unpack("beam-forks", between(quire_data_beams_begin, quire_data_beams_end)));
  return read_beam_forks("beam-forks", text);
}

}  // namespace quire
