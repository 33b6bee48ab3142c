#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "cli/cli.h"

int main(int argc, char** argv) {
  // A reader that goes away is a failed write, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto write_to = [](std::FILE* file) {
    return [file](std::string_view text) { std::fwrite(text.data(), 1, text.size(), file); };
  };
  auto output = write_to(stdout);
  auto errors = write_to(stderr);
  const int status = motley::cli::run(words, output, errors);
  // A failure of an earlier write, which the buffer no longer shows, stays in the stream's flag.
  const bool flushed = std::fflush(stdout) == 0;
  if ((!flushed || std::ferror(stdout) != 0) && status == 0) {
    errors("motley: can't write the result (standard output): check the disk or the pipe\n");
    return 1;
  }
  return status;
}
