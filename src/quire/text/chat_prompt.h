#pragma once
// From a rendered chat template to token ids.

#include <vector>

#include "quire/base/result.h"
#include "quire/text/chat_template.h"
#include "quire/text/tokenizer.h"

namespace quire {

/// The ids of a rendered template. Control tokens count where the template itself wrote them; a control token of which
/// any byte came from messages, tools or variables is plain text. Text of both kinds is otherwise tokenised as one. No
/// BOS is added: see with_bos().
Result<std::vector<TokenId>> encode_chat(const Tokenizer& tokenizer, const Rendered& rendered);

/// `ids` with the tokenizer's BOS in front if it wants one and the template has not written it already (a doubled BOS
/// changes a model's answers).
std::vector<TokenId> with_bos(const Tokenizer& tokenizer, std::vector<TokenId> ids);

}  // namespace quire
