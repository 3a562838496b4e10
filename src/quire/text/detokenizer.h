#pragma once
// Detokenizer: tokens of one stream, one at a time, as text. Invariants, for any tokens:
//  1. each returned string is valid UTF-8: bytes of an unfinished character are held until it is complete;
//  2. all strings returned by push() and finish() joined = Tokenizer::decode(all tokens, the same options);
//  3. at most 3 bytes are held.
// Ill-formed bytes become U+FFFD, once per maximal subpart (utf8.h). One per stream; not thread-safe. Refers to the
// tokenizer, which must outlive it.

#include <string>

#include "quire/base/ids.h"
#include "quire/text/tokenizer.h"
#include "quire/text/utf8.h"

namespace quire {

class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, DecodeOptions options = {});

  /// The text that `id` completes; empty if there is none yet. An id outside the vocabulary adds nothing.
  std::string push(TokenId id);

  /// The end of the stream: an unfinished character becomes one U+FFFD. The detokenizer is then as new.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  bool drop_space_;  ///< the next text is the first, and loses one leading space
  Utf8Stream stream_;
};

}  // namespace quire
