#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/requests/request.h"
#include "serving/answers/choice_text.h"
#include "serving/forms/chat_format.h"
#include "serving/prompts/chat_request.h"
#include "serving/prompts/forced_calls.h"
#include "serving/prompts/generation_settings.h"
#include "serving/prompts/notices.h"
#include "serving/prompts/open_message.h"
#include "serving/prompts/prompt_bounds.h"
#include "text/model_text.h"

namespace motley::serving {

// A conversation as the engine takes it, and how the text of its answers is read.
struct ChatPlan {
  engine::Request request;
  TextRules rules;
  std::vector<std::unique_ptr<OutputParser>> parsers;  // one for each choice
};

// Makes the engine's requests: renders conversations, tokenises them, constrains and parses
// answers. Knows no protocol. Thread-safe.
class Planner {
 public:
  struct Options {
    std::int64_t max_sequence_tokens = 0;
    bool keeps_states = false;          // of the engine: prompts say where conversations go on
    bool special_in_untrusted = false;  // special tokens in messages are recognised
    bool processed_logprobs = false;    // of answers: of the distribution that is drawn from
    FormNames forms = {};               // of answers, unless the template determines them
  };

  // The model's text must outlive the planner.
  Planner(const text::ModelText& text, Options options);

  const text::ModelText& text() const { return text_; }
  // The format of answers with the model's own template.
  const ChatFormat& format() const { return format_; }
  // Of prompts that are to be answered. `cancelled` may be null, or be set meanwhile by any thread.
  PromptBounds bounds(const std::atomic<bool>* cancelled) const;

  // The tokens of a conversation's prompt, of any length within the bounds. Moves everything except
  // the tools out of the request's inputs.
  Result<std::vector<std::int32_t>> prompt(ChatRequest& request, GenerationSettings& settings,
                                           const PromptBounds& bounds, Notices& notices) const;
  // The plan of an answer to it.
  Result<ChatPlan> chat(ChatRequest& request, GenerationSettings& settings,
                        const PromptBounds& bounds, Notices& notices) const;

  // For a prompt without a conversation.
  engine::Request request_for(std::vector<std::int32_t> tokens,
                              const GenerationSettings& settings) const;
  TextRules rules_for(const GenerationSettings& settings) const;

 private:
  // The prompt of a conversation.
  struct Rendered {
    text::MarkedText text;
    std::vector<std::int32_t> ids;
    std::int64_t conversation_tokens = 0;  // as the engine's request has them
    ChatFormat format;                     // of answers
    std::optional<OpenMessage> open;       // the last message, if the answer continues it
  };
  // A prompt, and how its answer is constrained and parsed.
  struct ChatPrompt {
    Rendered rendered;
    std::optional<ForcedCalls> forced;
    bool constrained = false;  // only content, in a requested form
  };

  Result<ChatPrompt> make_prompt(ChatRequest& request, GenerationSettings& settings,
                                 const PromptBounds& bounds, Notices& notices) const;
  // Decides the form of the answer; returns what the model's text begins with.
  Result<std::string> constrain(ChatPrompt& prompt, const ChatRequest& request,
                                GenerationSettings& settings, Notices& notices) const;
  Result<Rendered> render(text::ChatInputs inputs, const ChatRequest& request,
                          const GenerationSettings& settings, const PromptBounds& bounds) const;
  Result<text::MarkedText> write(text::ChatInputs inputs, const ChatRequest& request,
                                 ChatFormat& format) const;
  Result<std::vector<std::int32_t>> encode(const text::MarkedText& text,
                                           const GenerationSettings& settings,
                                           const PromptBounds& bounds) const;
  // How many of the prompt's tokens the same conversation begins with that has no generation
  // prompt; 0: the template does not write that.
  std::int64_t count_conversation(text::ChatInputs inputs, const ChatRequest& request,
                                  const GenerationSettings& settings, const PromptBounds& bounds,
                                  std::span<const std::int32_t> prompt) const;
  std::unique_ptr<OutputParser> make_parser(const ChatPrompt& prompt,
                                            const ChatRequest& request) const;
  TextRules rules_of(const ChatPrompt& prompt, const ChatRequest& request,
                     const GenerationSettings& settings) const;
  const ChatFormat& format_of(const GenerationSettings& settings) const;

  const text::ModelText& text_;
  Options options_;
  ChatFormat format_;
  std::map<std::string, ChatFormat, std::less<>> adapter_formats_;  // with templates of their own
  std::vector<SpecialToken> special_;
  std::size_t longest_token_bytes_ = 0;
};

// Checks the required form of the output once for all prompts and choices, on this thread; engines
// check in their caller's.
Result<void> check_form(GenerationSettings& settings);

}  // namespace motley::serving
