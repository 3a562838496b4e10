// stream_answer MODEL "question": loads a model and prints its answer as it is generated.
#include <cstdio>
#include <future>

#include "quire/engine/engine.h"
#include "quire/text/chat_prompt.h"

using namespace quire;

static Result<std::vector<TokenId>> prompt(const engine::Engine& engine, const char* question) {
  if (engine.chat_template() == nullptr) return fail("the model has no chat template");
  json::Value messages = json::Array{json::Object{{"role", "user"}, {"content", question}}};
  QUIRE_TRY(Rendered rendered,
            engine.chat_template()->render({.messages = messages, .bos_token = "", .eos_token = ""}));
  QUIRE_TRY(auto ids, encode_chat(engine.tokenizer(), rendered));
  return with_bos(engine.tokenizer(), std::move(ids));
}

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: stream_answer MODEL QUESTION\n"), 2;
  auto engine = engine::Engine::open({.model_path = argv[1]});
  if (!engine.ok()) return std::fprintf(stderr, "%s\n", engine.error().message.c_str()), 1;
  auto ids = prompt(**engine, argv[2]);
  if (!ids.ok()) return std::fprintf(stderr, "%s\n", ids.error().message.c_str()), 1;

  std::promise<void> done;
  auto submitted = (*engine)->submit({.prompt = *ids, .max_tokens = 128}, [&done](engine::Delta delta) {
    std::fwrite(delta.text.data(), 1, delta.text.size(), stdout);
    std::fflush(stdout);
    if (delta.finish) done.set_value();
  });
  if (!submitted.id) return std::fprintf(stderr, "%s\n", submitted.refusal.message.c_str()), 1;
  done.get_future().wait();
  std::puts("");
}
