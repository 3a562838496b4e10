#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "quire/kv/vattention_checker_test.h"

namespace quire {
namespace {

/// A command, whose numbers are read against the state it meets, so that any list of commands makes sense and shrinks.
struct Command {
  int kind;    ///< 0: committed plan, 1: abandoned plan, 2: fork, 3: release
  int first;   ///< picks a live sequence, or a new one
  int second;  ///< likewise; and whose beginning a new one shares
  int count;   ///< positions
};

void showValue(const Command& command, std::ostream& out) {
  out << "{kind " << command.kind << ", first " << command.first << ", second " << command.second << ", count "
      << command.count << "}";
}

rc::Gen<Command> any_command() {
  return rc::gen::build<Command>(
      rc::gen::set(&Command::kind, rc::gen::weightedElement<int>({{9, 0}, {1, 1}, {3, 2}, {3, 3}})),
      rc::gen::set(&Command::first, rc::gen::inRange(0, 8)), rc::gen::set(&Command::second, rc::gen::inRange(0, 8)),
      rc::gen::set(&Command::count, rc::gen::inRange(0, 200)));
}

constexpr std::int64_t kContext = 1000;

class Runner {
 public:
  Runner(const VAttentionOptions& options, bool with_cache) : checker_(options, with_cache), options_(options) {}

  void run(const Command& command) {
    const std::vector<SequenceId> live = checker_.sequences();
    if (command.kind <= 1) {
      VAttentionChecker::Operation grow{pick(command.first, live), command.count};
      if (static_cast<std::size_t>(command.first) >= live.size() && next_ > 1) {
        grow.like = SequenceId{1 + static_cast<std::uint64_t>(command.second) % next_};
        grow.num_like = command.count % 7 == 0 ? command.count : command.count * 3 / 4;
      }
      const VAttentionChecker::Operation other{pick(command.second, live), command.count % 3 - 1};
      if (checker_.has(grow.sequence) && checker_.num_tokens(grow.sequence) + grow.num_more > kContext) return;
      if (has_room(live.size() + 2)) checker_.run_plan({grow, other}, command.kind == 0);
    } else if (!live.empty()) {
      const SequenceId chosen = live[static_cast<std::size_t>(command.first) % live.size()];
      if (command.kind == 3) {
        checker_.release(chosen);
      } else if (has_room(live.size() + 1)) {
        const std::int64_t tokens = checker_.num_tokens(chosen);
        checker_.fork(chosen, SequenceId{next_++}, command.count % 2 == 0 ? tokens : tokens * command.second / 8);
      }
    }
    RC_ASSERT(checker_.difference().value_or("") == "");
  }

  void finish() {
    for (SequenceId sequence : checker_.sequences()) checker_.release(sequence);
    RC_ASSERT(checker_.difference().value_or("") == "");
    RC_ASSERT(checker_.manager().capacity().used_blocks() == 0);
  }

 private:
  bool has_room(std::size_t num_sequences) const {
    return static_cast<std::int32_t>(num_sequences) <= options_.num_places;
  }
  SequenceId pick(int number, const std::vector<SequenceId>& live) {
    return static_cast<std::size_t>(number) < live.size() ? live[static_cast<std::size_t>(number)]
                                                          : SequenceId{next_++};
  }

  VAttentionChecker checker_;
  const VAttentionOptions options_;
  std::uint64_t next_ = 1;
};

/// Tiles within groups, groups within tiles, and neither.
VAttentionOptions any_options(bool is_mapping_limit_near) {
  VAttentionOptions options;
  options.geometry.tile_bytes = *rc::gen::element(4, 6, 10, 12);
  options.geometry.group_bytes = *rc::gen::element(4, 5, 8, 30);
  options.num_groups = *rc::gen::inRange(1, 40);
  options.num_places = *rc::gen::inRange(3, 9);
  options.context_tokens = kContext;
  options.max_mappings = is_mapping_limit_near ? options.num_groups + options.num_places + 1 : 64'000;
  return options;
}

enum class Limit { far, near };

void run_any(bool with_cache, Limit limit) {
  const VAttentionOptions options = any_options(limit == Limit::near);
  const auto commands = *rc::gen::container<std::vector<Command>>(any_command());
  Runner runner(options, with_cache);
  for (const Command& command : commands) runner.run(command);
  runner.finish();
}

RC_GTEST_PROP(VAttentionProperty, AnyCommandsAgreeWithTheModelAndTheEndIsEmpty, ()) { run_any(false, Limit::far); }
RC_GTEST_PROP(VAttentionProperty, WithACacheEverybodyReadsWhatHeWroteOrFound, ()) { run_any(true, Limit::far); }
RC_GTEST_PROP(VAttentionProperty, TheMappingsStayWithinTheLimitHoweverMuchIsShared, ()) { run_any(true, Limit::near); }

}  // namespace
}  // namespace quire
