#include "cli/lack_of_threads.h"

#include <cstdlib>
#include <exception>
#include <system_error>

#include "base/log.h"

namespace motley::cli {
namespace {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::terminate_handler handler_before = nullptr;

[[noreturn]] void end_in_words() {
  log::write_before_end(log::failure_line(no_thread_error().message()));
  std::_Exit(1);
}

[[noreturn]] void on_terminate() {
  // While an exception is on its way, its type can't be asked for: a destroyed thread is the
  // reason.
  if (std::current_exception() == nullptr && std::uncaught_exceptions() > 0) end_in_words();
  try {
    if (std::current_exception() != nullptr) throw;
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) end_in_words();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the handler before says what it is
  }
  if (handler_before != nullptr) handler_before();
  std::abort();
}

}  // namespace

Error no_thread_error() {
  return {
      ErrorCode::out_of_memory, "no thread can be started", "limits of this process",
      "allow more processes and threads (ulimit -u, the container's pids limit), or end others"};
}

void explain_lack_of_threads() { handler_before = std::set_terminate(on_terminate); }

}  // namespace motley::cli
