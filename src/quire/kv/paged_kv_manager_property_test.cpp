#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "quire/kv/kv_checker_test.h"

namespace quire {
namespace {

/// A command, whose numbers are read against the state it meets, so that any list of commands makes sense and shrinks.
struct Command {
  int kind;                ///< 0: committed plan, 1: abandoned plan, 2: fork, 3: release
  int first;               ///< picks a live sequence, or a new one
  int second;              ///< likewise
  int count;               ///< positions
  int proposed, accepted;  ///< behind those
};

void showValue(const Command& command, std::ostream& out) {
  out << "{kind " << command.kind << ", first " << command.first << ", second " << command.second << ", count "
      << command.count << ", proposed " << command.proposed << ", accepted " << command.accepted << "}";
}

rc::Gen<Command> any_command() {
  return rc::gen::build<Command>(
      rc::gen::set(&Command::kind, rc::gen::weightedElement<int>({{8, 0}, {2, 1}, {3, 2}, {2, 3}})),
      rc::gen::set(&Command::first, rc::gen::inRange(0, 8)), rc::gen::set(&Command::second, rc::gen::inRange(0, 8)),
      rc::gen::set(&Command::count, rc::gen::inRange(0, 40)), rc::gen::set(&Command::proposed, rc::gen::inRange(0, 20)),
      rc::gen::set(&Command::accepted, rc::gen::inRange(0, 20)));
}

class Runner {
 public:
  Runner(int num_blocks, int block_size) : checker_(num_blocks, block_size) {}

  void run(const Command& command) {
    const std::vector<SequenceId> live = checker_.sequences();
    if (command.kind <= 1) {
      const KvChecker::Operation grow{pick(command.first, live), command.count, command.proposed, command.accepted};
      const KvChecker::Operation other{pick(command.second, live), command.count % 3 - 1};
      checker_.run_plan({grow, other}, command.kind == 0);
    } else if (!live.empty()) {
      const SequenceId chosen = live[static_cast<std::size_t>(command.first) % live.size()];
      command.kind == 2 ? checker_.fork(chosen, SequenceId{next_++}) : checker_.release(chosen);
    }
    RC_ASSERT(checker_.difference().value_or("") == "");
  }

  void finish() {
    for (SequenceId sequence : checker_.sequences()) checker_.release(sequence);
    RC_ASSERT(checker_.difference().value_or("") == "");
    RC_ASSERT(checker_.manager().capacity().used_blocks() == 0);
  }

 private:
  SequenceId pick(int number, const std::vector<SequenceId>& live) {
    return static_cast<std::size_t>(number) < live.size() ? live[static_cast<std::size_t>(number)]
                                                          : SequenceId{next_++};
  }

  KvChecker checker_;
  std::uint64_t next_ = 1;
};

RC_GTEST_PROP(PagedKvManagerProperty, AnyCommandsAgreeWithTheModelAndTheEndIsEmpty, ()) {
  const int num_blocks = *rc::gen::inRange(1, 16);
  const int block_size = *rc::gen::element(8, 16, 32, 64, 128);
  const auto commands = *rc::gen::container<std::vector<Command>>(any_command());
  Runner runner(num_blocks, block_size);
  for (const Command& command : commands) runner.run(command);
  runner.finish();
}

}  // namespace
}  // namespace quire
