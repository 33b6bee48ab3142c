#include "cli/cli.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/cat.h"
#include "base/log.h"
#include "base/spelling.h"
#include "base/system/out_of_memory.h"
#include "base/version.h"
#include "cli/lack_of_threads.h"
#include "cli/options/settings/log_options.h"

namespace motley::cli {
namespace {

std::vector<Command> commands() {
  std::vector<Command> all = {serve_command(), chat_command(),     ask_command(),
                              score_command(), tokenize_command(), inspect_command(),
                              bench_command()};
  const std::vector<OptionSpec> log = log_option_specs();
  for (Command& each : all) {
    if (each.logs) each.spec.options.insert(each.spec.options.end(), log.begin(), log.end());
  }
  return all;
}

// Commands of the contract that are not implemented yet.
constexpr std::array<std::string_view, 1> promised = {"quantize"};

std::string overview() {
  std::string text =
      "usage: motley COMMAND ...\n"
      "\n"
      "Serves Mixture-of-Experts language models with hundreds of LoRA adapters at once.\n"
      "\n"
      "commands:\n";
  const std::vector<Command> known = commands();
  std::size_t widest = 0;
  for (const Command& command : known) widest = std::max(widest, command.spec.name.size());
  for (const Command& command : known)
    text += cat("  ", command.spec.name, std::string(widest - command.spec.name.size() + 2, ' '),
                command.spec.summary, "\n");
  text += cat("\nnot there yet: ", join(promised),
              "\n\n"
              "motley COMMAND --help says more; motley --version prints the version.\n");
  return text;
}

std::vector<Command>::const_iterator find_command(const std::vector<Command>& known,
                                                  std::string_view name) {
  return std::ranges::find(known, name, [](const Command& each) { return each.spec.name; });
}

Error unknown_command(std::string_view word) {
  const std::vector<Command> known = commands();
  std::vector<std::string_view> names(promised.begin(), promised.end());
  for (const Command& command : known) names.push_back(command.spec.name);
  if (std::ranges::find(promised, word) != promised.end())
    return {ErrorCode::not_implemented, cat("motley ", word, " is not there yet"),
            cat("version ", version()), "use a later version; motley --help lists what there is"};
  const auto meant = closest(word, names);
  return {ErrorCode::invalid_argument, cat("unknown command ", quote(word)), "",
          meant ? cat("did you mean ", *meant, "?") : "see motley --help"};
}

bool is_help(std::string_view word) { return word == "--help" || word == "-h"; }

Result<void> dispatch(std::span<const std::string> words, const Environment& environment,
                      Output output) {
  if (words.empty())
    return Error(ErrorCode::invalid_argument, "no command", "", "see motley --help");
  const std::string& first = words.front();
  const std::span<const std::string> rest = words.subspan(1);
  if (first == "help" && !rest.empty()) {
    if (rest.size() > 1)
      return Error(ErrorCode::invalid_argument, cat("one argument too many, ", quote(rest[1])),
                   "motley help", "write one command after help");
    const std::vector<Command> known = commands();
    const auto named = find_command(known, rest.front());
    if (named == known.end()) return unknown_command(rest.front());
    return output(usage(named->spec)), Result<void>();
  }
  const bool asks_help = is_help(first) || first == "help";
  if (asks_help || first == "--version" || first == "version") {
    if (!rest.empty())
      return Error(ErrorCode::invalid_argument, cat("one argument too many, ", quote(rest.front())),
                   cat("motley ", first), cat("write ", first, " alone"));
    output(asks_help ? overview() : cat("motley ", version(), "\n"));
    return {};
  }

  const std::vector<Command> known = commands();
  const auto command = find_command(known, first);
  if (command == known.end()) return unknown_command(first);
  if (std::ranges::any_of(rest, is_help)) return output(usage(command->spec)), Result<void>();
  if (command->logs) prepare_log(rest);
  MOTLEY_TRY(Arguments arguments, Arguments::parse(command->spec, rest));
  arguments.set_environment(environment);
  if (command->logs) {
    MOTLEY_TRY_VOID(configure_log(arguments));
    log_ignored(arguments);
  }
  return command->run(arguments, output);
}

Result<void> dispatch_within_memory(std::span<const std::string> words,
                                    const Environment& environment, Output output) {
  Result<void> done = within_memory([&] { return dispatch(words, environment, output); });
  if (done.ok() || !is_out_of_memory_error(done.error())) return done;
  if (out_of_threads_count() > 0) return no_thread_error();
  return Error(ErrorCode::out_of_memory, "not enough memory", "",
               "free some, or use a machine with more");
}

}  // namespace

int run(std::span<const std::string> words, const Environment& environment, Output output,
        Output errors) {
  const Result<void> result = dispatch_within_memory(words, environment, output);
  if (result.ok()) return 0;
  errors(log::failure_line(result.error().message()));
  return exit_status(result.error().code());
}

}  // namespace motley::cli
