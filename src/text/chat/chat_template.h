#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "text/chat/marked_text.h"
#include "text/chat/template_habits.h"
#include "text/jinja/limits.h"

namespace motley::text {

// The inputs of a rendering. Everything except the special tokens is untrusted: it stays plain
// text, even if it reads like a special token.
struct ChatInputs {
  json::Value messages;  // a list of objects
  std::optional<json::Value> tools;
  std::optional<json::Value> documents;
  bool add_generation_prompt = true;
  json::Object kwargs;  // chat_template_kwargs: variables for the template
  // Names and texts: bos_token and so on.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  std::tm now{};  // local time
  // The adapter that answers, whose template is used if it has its own; empty: the base, or
  // several.
  std::string adapter = {};
};

// For conversations that only probe how a template writes them.
inline constexpr RenderLimits probe_limits{
    .steps = 200'000, .depth = 400, .output_bytes = 1 << 20, .memory_bytes = std::size_t{32} << 20};

// A model's chat template.
class ChatTemplate {
 public:
  // `where` names it in messages: its file.
  static Result<ChatTemplate> compile(std::string_view source, std::string_view where);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Renders the conversation to text, and marks its untrusted parts. raise_exception in the
  // template gives an invalid_argument error with its message. Thread-safe.
  Result<MarkedText> render(const ChatInputs& inputs, const RenderLimits& limits = {}) const;

  const TemplateHabits& habits() const { return habits_; }

 private:
  struct Compiled;
  explicit ChatTemplate(std::unique_ptr<Compiled> compiled);

  std::unique_ptr<Compiled> compiled_;
  TemplateHabits habits_;
};

}  // namespace motley::text
