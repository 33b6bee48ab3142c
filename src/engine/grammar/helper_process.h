#pragma once

#include <functional>
#include <sys/types.h>
#include <utility>

#include "base/result.h"
#include "engine/grammar/helper.h"

namespace motley::engine {

// A file descriptor with an owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();

  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

// Starts run_grammar_helper() in a process of its own, with these descriptors, which it may take
// over. The process, as its parent knows it.
using StartGrammarHelper = std::function<Result<pid_t>(int socket, int input)>;

// The program that runs now, started again. Fails where /proc is not there.
Result<pid_t> start_own_program(int socket, int input);

// The server's end of the first helper. It is started when a grammar first needs it, and again
// where it has ended. One thread at a time.
class GrammarHelperProcess {
 public:
  GrammarHelperProcess(const GrammarHelperInput& input, StartGrammarHelper start);
  ~GrammarHelperProcess();
  GrammarHelperProcess(const GrammarHelperProcess&) = delete;
  GrammarHelperProcess& operator=(const GrammarHelperProcess&) = delete;

  // Starts the first helper, if it does not run.
  Result<void> start();
  // The socket of a new helper.
  Result<Descriptor> fork();

 private:
  void stop();

  StartGrammarHelper start_;
  Descriptor input_;
  Descriptor socket_;
  pid_t process_ = 0;
};

}  // namespace motley::engine
