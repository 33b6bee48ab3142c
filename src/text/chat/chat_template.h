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

// What a conversation is rendered from. All but the special tokens is untrusted: what it holds
// stays plain text, whatever it reads like.
struct ChatInputs {
  json::Value messages;  // a list of objects
  std::optional<json::Value> tools;
  std::optional<json::Value> documents;
  bool add_generation_prompt = true;
  json::Object kwargs;  // chat_template_kwargs: variables of the template's own
  // Names and texts: bos_token and its like.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  std::tm now{};  // local time
};

// For conversations that only show how a template writes them.
inline constexpr RenderLimits probe_limits{
    .steps = 200'000, .depth = 400, .output_bytes = 1 << 20, .memory_bytes = std::size_t{32} << 20};

// A model's chat template.
class ChatTemplate {
 public:
  // `where` is what messages call it: its file.
  static Result<ChatTemplate> compile(std::string_view source, std::string_view where);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // The conversation as text, and which of it is untrusted. What the template refuses with
  // raise_exception is an invalid argument with its message. May run on many threads at once.
  Result<MarkedText> render(const ChatInputs& inputs, const RenderLimits& limits = {}) const;

  const TemplateHabits& habits() const { return habits_; }

 private:
  struct Compiled;
  explicit ChatTemplate(std::unique_ptr<Compiled> compiled);

  std::unique_ptr<Compiled> compiled_;
  TemplateHabits habits_;
};

}  // namespace motley::text
