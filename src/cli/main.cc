#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/system/mapped_files.h"
#include "cli/cli.h"
#include "cli/lack_of_threads.h"
#include "cli/options/arguments/environment.h"
#include "grammar/helper.h"

int main(int argc, char** argv) {
  // If the reader disconnects, or a file grows beyond the limit of the process (ulimit -f), writes
  // fail, and the process continues.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  motley::cli::explain_lack_of_threads();
  motley::explain_lost_pages();
  const std::vector<std::string> words(argv + 1, argv + argc);
  // The program starts itself with this argument, to follow grammars in separate processes.
  if (words == std::vector<std::string>{std::string(motley::grammar::helper_argument)}) {
    return motley::grammar::run_helper(motley::grammar::helper_socket,
                                       motley::grammar::helper_input);
  }
  auto output = [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); };
  // After the log; does not block forever if the standard error of a server is not read.
  auto errors = [](std::string_view text) { motley::log::write_beside(text); };
  const int status = motley::cli::run(words, motley::cli::read_environment(), output, errors);
  // Failures of earlier writes are only visible in the stream's flag.
  const bool flushed = std::fflush(stdout) == 0;
  if ((!flushed || std::ferror(stdout) != 0) && status == 0) {
    errors(motley::log::failure_line(
        "can't write the result (standard output): check the disk or the pipe"));
    return 1;
  }
  return status;
}
