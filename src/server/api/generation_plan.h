#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "engine/requests/request.h"
#include "server/api/api_error.h"
#include "server/api/calls/forced_calls.h"
#include "server/api/chat/chat_completion_request.h"
#include "server/api/fields/generation_fields.h"
#include "server/api/open_message.h"
#include "server/api/reply.h"
#include "server/api/request_charge.h"
#include "server/output/chat_format.h"
#include "text/model_text.h"

namespace motley::server {

// What a body is converted to before it goes to the engine.
struct GenerationPlan {
  std::vector<engine::Request> requests;  // one per prompt; empty if the charge exceeds the limits
  std::string model;                      // as the request names it
  std::size_t choices = 1;                // of each
  bool stream = false;
  TextRules rules;
  std::string_view grammar_field;      // of the body, if it determines the output's form
  std::shared_ptr<const void> source;  // owns what the reply refers to
  std::unique_ptr<Reply> reply;        // null if there are no requests
  RequestCharge charge;
  std::size_t max_memory_bytes = 0;  // of the request
  Notices notices;
  ErrorWriter write_error = openai_error;
  std::string_view base;  // the base model's id
};

// A text and its tokens, for routes that need no engine.
struct TokenizePlan {
  std::string model;
  std::vector<lora::ScaledAdapter> adapters;  // that it names
  std::vector<std::int32_t> ids;
  bool with_strings = false;  // as written in the tokenizer's file
  bool skip_special = false;
  Notices notices;
};

// Converts bodies to plans: checks, renders and tokenises. Thread-safe.
class GenerationPlanner {
 public:
  struct Options {
    std::string base;                       // the id of the base model
    std::vector<std::string> aliases = {};  // other names of it in requests
    std::int64_t vocabulary = 0;
    std::int64_t max_sequence_tokens = 0;
    bool keeps_states = false;          // of the engine: prompts say where conversations go on
    bool special_in_untrusted = false;  // special tokens in messages are recognised
    int max_logprobs = engine::max_top_logprobs;  // that requests may ask for
    bool processed_logprobs = false;  // of answers: of the distribution that is drawn from
    std::function<bool(const std::string&)> is_adapter = {};  // empty: none is
    bool strict_fields = false;                               // refuses unknown fields
    bool request_templates = false;  // conversations may bring their own template
    FormNames forms = {};            // of answers, unless the template determines them
    RequestLimits limits = {};       // of one request
  };

  // The model's text must outlive the planner.
  GenerationPlanner(const text::ModelText& text, Options options);

  // `asked.cancelled` may be set meanwhile by any thread, if the plan is not needed any more.
  Result<GenerationPlan> completion(const json::Value& body, const Asked& asked = {}) const;
  Result<GenerationPlan> chat(const json::Value& body, const Asked& asked = {}) const;

  Result<GenerationPlan> responses(const json::Value& body, const Asked& asked = {}) const;
  Result<GenerationPlan> messages(const json::Value& body, const Asked& asked = {}) const;
  // For the prompt that messages() would make.
  Result<TokenizePlan> count_tokens(const json::Value& body, const Asked& asked = {}) const;
  // Tokens are those of a completion or a chat with the same fields.
  Result<TokenizePlan> tokenize(const json::Value& body, const Asked& asked) const;
  Result<TokenizePlan> detokenize(const json::Value& body, const Asked& asked) const;

  const Options& options() const { return options_; }
  // The format of answers with the model's own template.
  const ChatFormat& format() const { return format_; }

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
  // Moves everything except the tools out of the request's inputs.
  Result<ChatPrompt> make_prompt(ChatCompletionRequest& request, const ApiContext& context) const;
  std::unique_ptr<OutputParser> make_parser(const ChatPrompt& prompt,
                                            const ChatCompletionRequest& request) const;

  // A conversation's plan without `source` and `reply`, which depend on the route.
  struct ChatPlan {
    GenerationPlan plan;
    std::vector<std::unique_ptr<OutputParser>> parsers;  // one for each choice
    RequestSize size;                                    // for which it is charged
  };
  // Moves everything except the tools out of the request's inputs.
  Result<ChatPlan> plan_chat(ChatCompletionRequest& request, const ApiContext& context) const;

  ApiContext context(const Asked& asked, Notices& notices) const;
  ApiContext tokenize_context(const Asked& asked, Notices& notices) const;
  Result<text::MarkedText> write(text::ChatInputs inputs, const ChatCompletionRequest& request,
                                 ChatFormat& format) const;
  Result<Rendered> render(text::ChatInputs inputs, const ChatCompletionRequest& request,
                          const ApiContext& context) const;
  Result<std::vector<std::int32_t>> encode(const text::MarkedText& text,
                                           const GenerationFields& fields,
                                           const ApiContext& context) const;
  // How many of the prompt's tokens the same conversation begins with that has no generation
  // prompt; 0: the template does not write that.
  std::int64_t count_conversation(text::ChatInputs inputs, const ChatCompletionRequest& request,
                                  const ApiContext& context,
                                  std::span<const std::int32_t> prompt) const;
  Result<void> check_length(std::size_t prompt_tokens, const GenerationFields& fields,
                            std::string_view place) const;
  engine::Request request_for(std::vector<std::int32_t> tokens,
                              const GenerationFields& fields) const;
  TextRules rules_for(const GenerationFields& fields) const;

  const ChatFormat& format_of(const GenerationFields& fields) const;

  const text::ModelText& text_;
  Options options_;
  ChatFormat format_;
  std::map<std::string, ChatFormat, std::less<>> adapter_formats_;  // with templates of their own
  std::vector<SpecialToken> special_;
  std::size_t longest_token_bytes_ = 0;
};

}  // namespace motley::server
