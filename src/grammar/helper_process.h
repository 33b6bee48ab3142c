#pragma once

#include <functional>
#include <sys/types.h>
#include <utility>

#include "base/result.h"
#include "grammar/helper.h"

namespace motley::grammar {

// Owns a file descriptor.
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

// Starts run_helper() in a new process with these descriptors, which it may take over.
// Returns the process id.
using StartHelper = std::function<Result<pid_t>(int socket, int input)>;

// Starts the running program again. Fails if /proc is not available.
Result<pid_t> start_own_program(int socket, int input);

// The server's side of the first helper, which is started when a grammar first needs it, and
// restarted after it has ended. Not thread-safe.
class HelperProcess {
 public:
  HelperProcess(const HelperInput& input, StartHelper start);
  ~HelperProcess();
  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;

  // Starts the first helper unless it runs.
  Result<void> start();
  // Returns the socket of a new helper.
  Result<Descriptor> fork();

 private:
  void stop();

  StartHelper start_;
  Descriptor input_;
  int input_failure_ = 0;  // why there is no input
  Descriptor socket_;
  pid_t process_ = 0;
};

}  // namespace motley::grammar
