#pragma once

#include <unistd.h>

#include "grammar/helper_process.h"

// For tests: a helper that is a fork of this process instead of the program.
namespace motley::grammar {

inline Result<pid_t> fork_helper_with_clock(int socket, int input, ProcessorClock clock) {
  // It closes all other copied descriptors, so that closing them here has its effect.
  const pid_t process = ::fork();
  if (process == 0) {
    ::dup2(socket, helper_socket + 100);
    ::dup2(input, helper_input + 100);
    ::close_range(3, helper_socket + 99, 0);
    ::close_range(helper_input + 101, ~0U, 0);
    ::_exit(run_helper(helper_socket + 100, helper_input + 100, clock));
  }
  if (process < 0) return Error(ErrorCode::unavailable, "no process");
  return process;
}

inline Result<pid_t> fork_helper(int socket, int input) {
  return fork_helper_with_clock(socket, input, processor_time_ns);
}

}  // namespace motley::grammar
