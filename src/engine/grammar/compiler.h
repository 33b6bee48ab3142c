#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/grammar/cache.h"
#include "engine/grammar/grammar.h"

namespace motley::engine {

// Compiles grammars beside the engine: a few threads, a bounded queue, and a time after which a
// request hears that its grammar takes too long. The threads outlive every grammar; one that takes
// longer is finished and kept for whoever asks again.
class GrammarCompiler {
 public:
  struct Options {
    int threads = 2;
    std::size_t most_queued = 64;
    Duration patience = std::chrono::seconds(20);
    std::size_t cache_bytes = std::size_t{256} << 20;
  };
  using Compile = std::function<Result<Grammar>(const GrammarSpec&)>;
  // Called once, from submit() or from one of the compiler's threads: it must not block.
  using Done = std::function<void(Result<Grammar>)>;

  GrammarCompiler(Compile compile, const Options& options);
  // Requests that wait hear `unavailable`; a grammar that is being compiled is waited for.
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // `invalid_argument` for what check_grammar() or the compiler refuses, `busy` where the queue is
  // full, `too_long` where patience ends. From any thread.
  void submit(const GrammarSpec& spec, Done done);

 private:
  struct Waiter {
    Done done;
    TimePoint until;
  };
  // One grammar on its way, and everybody who wants it.
  struct Work {
    GrammarSpec spec;
    std::string key;
    std::vector<Waiter> waiters;
  };

  // What is known at once; else `done` waits for it.
  std::optional<Result<Grammar>> answer_or_wait(const GrammarSpec& spec, Done& done);
  void compile_works();
  void watch_time();
  // Those whose patience ended, out of their works; a work that nobody waits for leaves the queue.
  std::vector<Waiter> take_impatient(TimePoint now);
  TimePoint first_deadline() const;

  Compile compile_;
  Options options_;
  std::mutex lock_;
  std::condition_variable has_work_;
  std::condition_variable has_waiters_;
  bool stopping_ = false;
  GrammarCache cache_;
  std::deque<std::shared_ptr<Work>> queue_;
  std::unordered_map<std::string, std::shared_ptr<Work>> works_;  // queued or running, by key
  std::vector<std::thread> threads_;
};

}  // namespace motley::engine
