// Fault simulation: seeds of core/load_script.h, each a random load with faults on the production scheduler, KV manager
// and lifecycle over a shadow executor. Child processes run the seeds, so that a failed check or a crash is a result
// like any other: it is shrunk to a small script, which is printed with its seed.
//
//     simulate [--seeds N] [--first-seed S] [--jobs J] [--json]

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>

#include "quire/core/load_script.h"

namespace {

using quire::LoadScript;

struct Shared {
  std::atomic<std::uint64_t> next{0}, done{0}, failed_seed{0};
  std::atomic<bool> failed{false};
  std::atomic<std::uint64_t> steps{0}, preemptions{0}, hits{0};
};

struct Settings {
  std::uint64_t num_seeds = 10000, first_seed = 1;
  unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
  bool json = false;
};

/// Every fourth seed is for vAttention's memory.
LoadScript script_of(std::uint64_t seed) {
  return quire::make_script(seed, seed % 4 == 0 ? quire::ScriptMemory::vattention : quire::ScriptMemory::paged);
}

/// Seeds until none is left or one fails; the exit status says which.
[[noreturn]] void run_worker(const Settings& settings, Shared& shared, std::atomic<std::uint64_t>& current) {
  while (!shared.failed) {
    const std::uint64_t index = shared.next++;
    if (index >= settings.num_seeds) std::_Exit(0);
    current = settings.first_seed + index;
    quire::ScriptTotals totals;
    if (const auto problem = run_script(script_of(current), totals)) std::_Exit(1);
    ++shared.done;
    shared.steps += totals.steps;
    shared.preemptions += totals.preemptions;
    shared.hits += totals.hits;
  }
  std::_Exit(0);
}

/// In a process of its own, its words unheard.
bool fails(const LoadScript& script) {
  const pid_t child = fork();
  if (child == 0) {
    if (!std::freopen("/dev/null", "w", stderr)) std::_Exit(2);
    quire::ScriptTotals totals;
    std::_Exit(run_script(script, totals) ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status != 0;
}

void report(std::uint64_t seed) {
  std::fprintf(stderr, "\nseed %llu failed; shrinking\n", static_cast<unsigned long long>(seed));
  const LoadScript smallest = shrink_script(script_of(seed), fails);
  std::fputs(to_text(smallest).c_str(), stderr);
  std::fprintf(stderr, "again with: ./dev simulate --seeds 1 --first-seed %llu\n",
               static_cast<unsigned long long>(seed));
  quire::ScriptTotals totals;
  const auto problem = run_script(smallest, totals);  // a failed check says where and ends here
  std::fprintf(stderr, "problem: %s\n", problem.value_or("only in a process of its own").c_str());
}

/// True if all seeds passed.
bool run_all(const Settings& settings, Shared& shared, std::atomic<std::uint64_t>* current) {
  std::vector<pid_t> workers;
  for (unsigned w = 0; w < settings.jobs; ++w) {
    const pid_t child = fork();
    if (child == 0) run_worker(settings, shared, current[w]);
    workers.push_back(child);
  }
  const bool shows_progress = isatty(STDERR_FILENO) != 0;
  for (unsigned left = settings.jobs; left > 0;) {
    int status = 0;
    const pid_t child = waitpid(-1, &status, WNOHANG);
    if (child == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (shows_progress)
        std::fprintf(stderr, "\r%llu of %llu seeds", static_cast<unsigned long long>(shared.done.load()),
                     static_cast<unsigned long long>(settings.num_seeds));
      continue;
    }
    --left;
    if (status == 0 || shared.failed.exchange(true)) continue;
    const auto worker = std::find(workers.begin(), workers.end(), child) - workers.begin();
    shared.failed_seed = current[worker].load();
  }
  if (shows_progress) std::fputc('\n', stderr);
  return !shared.failed;
}

int simulate(const Settings& settings) {
  const std::size_t bytes = sizeof(Shared) + settings.jobs * sizeof(std::atomic<std::uint64_t>);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    return 1;
  }
  auto* shared = new (memory) Shared;
  auto* current = new (shared + 1) std::atomic<std::uint64_t>[settings.jobs] {};
  const bool passed = run_all(settings, *shared, current);
  const auto count = [](const std::atomic<std::uint64_t>& value) { return static_cast<unsigned long long>(value); };
  std::printf(settings.json ? "{\"seeds\": %llu, \"steps\": %llu, \"preemptions\": %llu, \"prefix_hits\": %llu, "
                              "\"passed\": %s}\n"
                            : "%llu seeds, %llu steps, %llu preemptions, %llu tokens found in the cache: %s\n",
              count(shared->done), count(shared->steps), count(shared->preemptions), count(shared->hits),
              settings.json ? (passed ? "true" : "false") : (passed ? "all passed" : "FAILED"));
  std::fflush(stdout);
  if (!passed) report(shared->failed_seed);
  return passed ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Runs random loads with faults on the engine's core and checks every step");
  app.add_option("--seeds", settings.num_seeds, "how many")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--first-seed", settings.first_seed, "the first of them")->capture_default_str();
  app.add_option("--jobs", settings.jobs, "processes")->capture_default_str()->check(CLI::Range(1u, 256u));
  app.add_flag("--json", settings.json, "one JSON object");
  CLI11_PARSE(app, argc, argv);
  return simulate(settings);
}
