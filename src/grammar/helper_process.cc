#include "grammar/helper_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <spawn.h>
#include <string_view>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cat.h"
#include "grammar/descriptor_message.h"

namespace motley::grammar {
namespace {

Error no_helper(std::string_view what) {
  return {ErrorCode::unavailable,
          cat("can't start a helper for grammars: ", what, ": ", std::strerror(errno)), "grammar",
          "send the request without a grammar, or to another server"};
}

struct Ends {
  Descriptor ours;
  Descriptor theirs;
};

Result<Ends> socket_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return no_helper("no socket");
  return Ends{.ours = Descriptor(ends[0]), .theirs = Descriptor(ends[1])};
}

// An in-memory file with a text; -1 on failure.
int memory_file(std::string_view text) {
  const int file = ::memfd_create("motley-grammar", MFD_CLOEXEC);
  while (file >= 0 && !text.empty()) {
    const ssize_t bytes = ::write(file, text.data(), text.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) {
      const int failure = errno;
      ::close(file);
      errno = failure;
      return -1;
    }
    text.remove_prefix(static_cast<std::size_t>(bytes));
  }
  return file;
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

Result<pid_t> start_own_program(int socket, int input) {
  // Moved above the descriptor numbers that the helper expects.
  const Descriptor high_socket(::fcntl(socket, F_DUPFD_CLOEXEC, 16));
  const Descriptor high_input(::fcntl(input, F_DUPFD_CLOEXEC, 16));
  if (!high_socket || !high_input) return no_helper("no descriptor");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, high_socket.get(), helper_socket);
  ::posix_spawn_file_actions_adddup2(&actions, high_input.get(), helper_input);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, helper_input + 1);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::string name = "motley";
  std::string argument(helper_argument);
  const std::array<char*, 3> arguments = {name.data(), argument.data(), nullptr};
  pid_t process = 0;
  errno =
      ::posix_spawn(&process, "/proc/self/exe", &actions, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (errno != 0) return no_helper("/proc/self/exe");
  return process;
}

HelperProcess::HelperProcess(const HelperInput& input, StartHelper start)
    : start_(std::move(start)), input_(memory_file(input.write())) {
  if (!input_) input_failure_ = errno;
}

HelperProcess::~HelperProcess() { stop(); }

void HelperProcess::stop() {
  if (process_ == 0) return;
  socket_ = Descriptor();
  // Even while it is busy, such as reading a large vocabulary.
  ::kill(process_, SIGKILL);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
  process_ = 0;
}

Result<void> HelperProcess::start() {
  if (socket_) return {};
  if (!input_) {
    errno = input_failure_;
    return no_helper(errno == EFBIG
                         ? "the vocabulary is larger than a file may be (ulimit -f, LimitFSIZE)"
                         : "no memory for the vocabulary");
  }
  MOTLEY_TRY(Ends ends, socket_pair());
  MOTLEY_TRY(process_, start_(ends.theirs.get(), input_.get()));
  socket_ = std::move(ends.ours);
  return {};
}

Result<Descriptor> HelperProcess::fork() {
  MOTLEY_TRY(Ends ends, socket_pair());
  MOTLEY_TRY_VOID(start());
  if (!send_descriptor(socket_.get(), ends.theirs.get())) {
    if (errno != EPIPE && errno != ECONNRESET) return no_helper("it can't be asked");
    // It has ended; another one is started.
    stop();
    MOTLEY_TRY_VOID(start());
    if (!send_descriptor(socket_.get(), ends.theirs.get())) return no_helper("it ends at once");
  }
  return std::move(ends.ours);
}

}  // namespace motley::grammar
