// motley tokenize: converts text with the model's tokenizer and chat template, and back.

#include <cstdio>
#include <ctime>
#include <unistd.h>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/system/files.h"
#include "cli/command.h"
#include "cli/input_lines.h"
#include "cli/options/folders/named_folder.h"
#include "text/chat/chat_request.h"
#include "text/model_text.h"

namespace motley::cli {
namespace {

constexpr std::size_t longest_input = std::size_t{1} << 31;
constexpr std::string_view input_name = "standard input";

enum class Work : std::uint8_t { encode, chat, decode };

struct Settings {
  std::filesystem::path model;
  std::optional<Work> work;  // nothing: depends on each line's type
  bool lines = false;
  bool special = true;  // adds the post-processor's tokens; with --decode: shows special tokens
  bool special_in_untrusted = false;
};

Result<Settings> read_settings(const Arguments& arguments) {
  Settings settings{.model = arguments.positional(0),
                    .lines = arguments.has("--lines"),
                    .special = !arguments.has("--no-special"),
                    .special_in_untrusted = arguments.has("--hf-special-text")};
  if (arguments.has("--chat") && arguments.has("--decode"))
    return Error(ErrorCode::invalid_argument, "both --chat and --decode", "", "give one of them");
  if (arguments.has("--chat")) settings.work = Work::chat;
  if (arguments.has("--decode")) settings.work = Work::decode;
  if (!settings.lines && !settings.work) settings.work = Work::encode;
  MOTLEY_TRY(settings.model, find_folder(settings.model, arguments.environment().hub));
  return settings;
}

std::string ids_as_json(std::span<const std::int32_t> ids) {
  std::string list = "[";
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) list += ", ";
    list += std::to_string(ids[i]);
  }
  return list + "]";
}

std::string string_as_json(std::string_view text) {
  std::string literal;
  json::append_string(literal, text);
  return literal;
}

Result<std::string> encode(const text::ModelText& model, const Settings& settings,
                           std::string_view text) {
  MOTLEY_TRY(const auto ids,
             model.tokenizer().encode(text, {.add_special_tokens = settings.special}));
  return ids_as_json(ids);
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  return local;
}

Result<std::string> chat(const text::ModelText& model, const Settings& settings,
                         const json::Value& value) {
  MOTLEY_TRY(text::ChatInputs inputs, text::read_chat_request(value, input_name));
  inputs.now = local_time();
  MOTLEY_TRY(const auto written, model.chat(std::move(inputs), settings.special_in_untrusted));
  return cat("{\"text\": ", string_as_json(written.text.text),
             ", \"token_ids\": ", ids_as_json(written.ids), "}");
}

Result<std::string> decode(const text::ModelText& model, const Settings& settings,
                           const json::Value& value) {
  MOTLEY_TRY(const json::Array* list, value.as_array(input_name));
  std::vector<std::int32_t> ids;
  ids.reserve(list->size());
  for (const json::Value& each : *list) {
    MOTLEY_TRY(const std::int64_t id, each.as_integer(input_name));
    if (id < 0 || id >= model.tokenizer().size())
      return Error(ErrorCode::invalid_argument, cat("token id ", id, " is out of range"),
                   std::string(input_name),
                   cat("ids of this tokenizer are 0 to ", model.tokenizer().size() - 1));
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return string_as_json(model.tokenizer().decode(ids, !settings.special));
}

Work work_of(const json::Value& value) {
  if (value.if_array() != nullptr) return Work::decode;
  return value.if_object() != nullptr ? Work::chat : Work::encode;
}

// The result for one JSON value.
Result<std::string> work_on(const text::ModelText& model, const Settings& settings,
                            const json::Value& value) {
  switch (settings.work.value_or(work_of(value))) {
    case Work::chat:
      return chat(model, settings, value);
    case Work::decode:
      return decode(model, settings, value);
    case Work::encode:
      break;
  }
  MOTLEY_TRY(const std::string* const text, value.as_string(input_name));
  return encode(model, settings, *text);
}

Result<std::string> work_on_json(const text::ModelText& model, const Settings& settings,
                                 std::string_view json) {
  MOTLEY_TRY(const json::Value value, json::parse(json, input_name));
  return work_on(model, settings, value);
}

Result<void> work_on_lines(const text::ModelText& model, const Settings& settings, Output output) {
  InputLines lines(STDIN_FILENO, longest_input);
  std::size_t done = 0;
  std::size_t failed = 0;
  while (true) {
    // Flushes the answers before reading more, in case the reader waits for them.
    MOTLEY_TRY(const auto line, lines.next([] { std::fflush(stdout); }));
    if (!line) break;
    ++done;
    auto result = work_on_json(model, settings, *line);
    if (!result.ok()) ++failed;
    output(result.ok() ? cat(*result, "\n")
                       : cat("{\"error\": ", string_as_json(result.error().message()), "}\n"));
  }
  if (failed == 0) return {};
  return Error(ErrorCode::bad_file, cat(failed, " of ", done, " lines failed"),
               std::string(input_name), "see the errors that stand in their places");
}

Result<void> run_tokenize(const Arguments& arguments, Output output) {
  MOTLEY_TRY(const Settings settings, read_settings(arguments));
  MOTLEY_TRY(const text::ModelText model, text::ModelText::load(settings.model));
  if (settings.lines) return work_on_lines(model, settings, output);
  MOTLEY_TRY(const std::string input, read_input("-", longest_input));
  MOTLEY_TRY(const std::string result, *settings.work == Work::encode
                                           ? encode(model, settings, input)
                                           : work_on_json(model, settings, input));
  output(cat(result, "\n"));
  return {};
}

}  // namespace

Command tokenize_command() {
  return {
      .spec = {.name = "tokenize",
               .summary = "token ids of text or of a conversation, and back",
               .positionals = {"MODEL"},
               .options =
                   {{"--chat", "", "read {\"messages\": [...]}, print {\"text\", \"token_ids\"}"},
                    {"--decode", "", "read a list of ids, print their text"},
                    {"--lines", "", "a JSON string, conversation or list a line, a result a line"},
                    {"--no-special", "", "add no special tokens; with --decode, leave them out"},
                    {"--hf-special-text", "",
                     "take special tokens in messages for real, as Hugging Face does"}},
               .examples = {"motley tokenize models/demo < text",
                            "motley tokenize models/demo --chat < messages.json",
                            "motley tokenize models/demo --lines --decode < ids.jsonl"}},
      .run = run_tokenize};
}

}  // namespace motley::cli
