// motley chat: a chat in the terminal.

#include <algorithm>
#include <cstdio>
#include <unistd.h>
#include <utility>

#include "base/cat.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/conversation.h"
#include "cli/engine_stack_source.h"
#include "cli/input_lines.h"
#include "cli/signals.h"
#include "serving/devices.h"
#include "serving/engine_stack.h"
#include "text/model_text.h"

namespace motley::cli {
namespace {

constexpr std::size_t longest_line = std::size_t{1} << 24;
constexpr std::string_view help =
    "/adapter NAME   the next answers come from that adapter\n"
    "/adapter        ... from the base\n"
    "/adapters       who there is\n"
    "/reset          begins anew\n"
    "/quit           ends\n";

// Prints answers; reasoning in another shade.
class Screen {
 public:
  explicit Screen(Output output) : output_(output), terminal_(::isatty(STDOUT_FILENO) == 1) {}

  void prompt(const Conversation& conversation) {
    if (terminal_)
      show(cat(conversation.adapter().empty() ? "base" : conversation.adapter(), "> "));
  }
  void piece(const serving::ParsedOutput& piece) {
    if (!piece.reasoning.empty()) {
      if (terminal_ && !std::exchange(reasoning_, true)) show("\x1b[2m");
      show(piece.reasoning);
    }
    if (piece.content.empty()) return;
    end_reasoning();
    show(piece.content);
  }
  void end(const Conversation::Answer& answer) {
    end_reasoning();
    show(answer.cut_off ? " ...\n" : "\n");
    if (!terminal_ || answer.tokens < 2) return;
    const double rest = answer.seconds - answer.seconds_to_first;
    const auto rate = static_cast<std::int64_t>(static_cast<double>(answer.tokens - 1) / rest);
    show(cat("\x1b[2m", answer.tokens, " tokens, ", rate, " a second\x1b[0m\n"));
  }
  void show(std::string_view text) {
    output_(text);
    std::fflush(stdout);
  }

 private:
  void end_reasoning() {
    if (reasoning_) show("\x1b[0m\n\n");
    reasoning_ = false;
  }

  Output output_;
  bool terminal_;
  bool reasoning_ = false;
};

class Chat {
 public:
  Chat(engine::Engine& engine, Conversation& conversation, const HeldSignals& signals,
       Screen& screen)
      : engine_(engine), conversation_(conversation), signals_(signals), screen_(screen) {}

  // False at the end of the chat.
  Result<bool> take_line(std::string_view line) {
    if (line.empty()) return true;
    if (line.starts_with('/')) return command(line);
    const auto answer = conversation_.say(
        line, [&](const serving::ParsedOutput& piece) { screen_.piece(piece); },
        // An interrupt ends the answer, not the chat.
        [&] { return signals_.wait(std::chrono::milliseconds(0)) != 0; });
    if (!answer.ok()) {
      MOTLEY_TRY_VOID(engine_.health());
      screen_.show(cat(answer.error().message(), "\n"));
      failed_ = true;
    } else {
      screen_.end(*answer);
    }
    return true;
  }

  bool failed() const { return failed_; }

 private:
  Result<bool> command(std::string_view line) {
    const std::string_view word = line.substr(0, line.find(' '));
    const std::string_view rest =
        word.size() < line.size() ? line.substr(word.size() + 1) : std::string_view();
    if (word == "/quit") return false;
    if (word == "/reset") {
      conversation_.forget();
    } else if (word == "/adapters") {
      for (const engine::AdapterInfo& each : engine_.adapters()) screen_.show(cat(each.name, "\n"));
    } else if (word == "/adapter") {
      take_adapter(rest);
    } else {
      screen_.show(help);
    }
    return true;
  }

  void take_adapter(std::string_view name) {
    const auto adapters = engine_.adapters();
    const bool known =
        name.empty() ||
        std::ranges::find(adapters, name, &engine::AdapterInfo::name) != adapters.end();
    if (known)
      conversation_.speak_as(std::string(name));
    else
      screen_.show(cat("no adapter ", quote(name), "; /adapters lists them\n"));
    failed_ |= !known;
  }

  engine::Engine& engine_;
  Conversation& conversation_;
  const HeldSignals& signals_;
  Screen& screen_;
  bool failed_ = false;
};

// While a line is read, an interrupt ends the program.
void let_interrupts_through(bool through) {
  sigset_t interrupts;
  ::sigemptyset(&interrupts);
  ::sigaddset(&interrupts, SIGINT);
  ::sigaddset(&interrupts, SIGTERM);
  ::pthread_sigmask(through ? SIG_UNBLOCK : SIG_BLOCK, &interrupts, nullptr);
}

Result<void> run_chat(const Arguments& arguments, Output output) {
  MOTLEY_TRY(ModelSettings settings, read_model_settings(arguments));
  MOTLEY_TRY_VOID(require_one_replica(settings.engine.compute, "chat"));
  MOTLEY_TRY(settings.engine.compute, serving::choose_devices(std::move(settings.engine.compute)));
  const HeldSignals signals;
  MOTLEY_TRY(const text::ModelText text, load_text(settings));
  MOTLEY_TRY(const std::unique_ptr<serving::EngineStack> stack,
             serving::EngineStack::load(settings.engine, source_of_folder(settings, text)));
  const serving::Planner planner =
      make_chat_planner(stack->engine(), text, settings.special_in_untrusted);
  Conversation conversation(stack->engine(), planner);
  Screen screen(output);
  Chat chat(stack->engine(), conversation, signals, screen);
  InputLines lines(STDIN_FILENO, longest_line);
  while (true) {
    screen.prompt(conversation);
    let_interrupts_through(true);
    auto line = lines.next([] {});
    let_interrupts_through(false);
    if (!line.ok()) return std::move(line).error();
    if (!*line) break;
    MOTLEY_TRY(const bool on, chat.take_line(**line));
    if (!on) break;
  }
  if (!chat.failed()) return {};
  return Error(ErrorCode::bad_file, "some lines got no answer", "standard input",
               "see what stands in their places");
}

}  // namespace

Command chat_command() {
  std::vector<OptionSpec> options = model_option_specs();
  options.push_back(template_option_spec());
  return {
      .spec = {.name = "chat",
               .summary = "talk to a model in the terminal",
               .positionals = {"MODEL"},
               .options = std::move(options),
               .examples = {"motley chat models/demo",
                            "motley chat models/demo --adapter jargon=models/demo/adapters/jargon"},
               .others = OthersOptions::mapped},
      .run = run_chat};
}

}  // namespace motley::cli
