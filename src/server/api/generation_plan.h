#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/json/json.h"
#include "base/result.h"
#include "engine/requests/request.h"
#include "server/api/api_error.h"
#include "server/api/chat/chat_completion_request.h"
#include "server/api/fields/generation_fields.h"
#include "server/api/reply.h"
#include "server/api/request_charge.h"
#include "serving/prompts/planner.h"
#include "text/model_text.h"

namespace motley::server {

// What a body is converted to before it goes to the engine.
struct GenerationPlan {
  std::vector<engine::Request> requests;  // one per prompt; empty if the charge exceeds the limits
  std::unique_ptr<Reply> reply;           // null if there are no requests
  std::string model;                      // as the request names it
  std::string request_id;                 // that the body gives; empty: none
  std::size_t choices = 1;                // of each
  bool stream = false;
  serving::TextRules rules;
  std::string_view grammar_field;  // of the body, if it determines the output's form
  RequestCharge charge;
  RequestLimits limits;
  serving::Notices notices;
  ErrorWriter write_error = openai_error;
};

// Requests for /inference/v1/generate that would be answered as this body.
struct RenderPlan {
  GenerationPlan generation = {};
  std::string id;  // of the requests
  // Members that they have as the body does, as JSON; of themselves and of `sampling_params`.
  std::string body_members;
  std::string sampling_members;
  bool list = false;
};

// A text and its tokens, for routes that need no engine.
struct TokenizePlan {
  std::string model;
  std::vector<lora::ScaledAdapter> adapters;  // that it names
  std::vector<std::int32_t> ids;
  bool with_strings = false;  // as written in the tokenizer's file
  bool skip_special = false;
  serving::Notices notices;
};

// Converts the bodies of all protocols to plans. Thread-safe.
class GenerationPlanner {
 public:
  struct Options {
    std::string base;                       // the id of the base model
    std::vector<std::string> aliases = {};  // other names of it in requests
    std::int64_t vocabulary = 0;
    serving::Planner::Options prompts = {};
    int max_logprobs = engine::max_top_logprobs;              // that requests may ask for
    std::function<bool(const std::string&)> is_adapter = {};  // empty: none is
    // The adapter of requests that name the base, as of now; empty: none.
    std::function<std::string()> default_adapter = {};
    bool strict_fields = false;                      // refuses unknown fields
    bool request_templates = false;                  // conversations may bring their own template
    engine::RoutedExpertsSizes routed_experts = {};  // that requests may ask for
    // Prompts share the prefix cache with those of the same client alone.
    bool private_prefixes = false;
    RequestLimits limits = {};  // of one request
  };

  // The model's text must outlive the planner.
  GenerationPlanner(const text::ModelText& text, Options options);

  // `asked.cancelled` may be set meanwhile by any thread, if the plan is not needed any more.
  Result<GenerationPlan> completion(const json::Value& body, const Asked& asked = {}) const;
  Result<GenerationPlan> chat(const json::Value& body, const Asked& asked = {}) const;
  Result<GenerationPlan> responses(const json::Value& body, const Asked& asked = {}) const;
  Result<GenerationPlan> messages(const json::Value& body, const Asked& asked = {}) const;
  // Of ids, in numbers.
  Result<GenerationPlan> tokens(const json::Value& body, const Asked& asked = {}) const;
  // What chat() and completion() would send to the engine, as requests for tokens().
  Result<RenderPlan> render_chat(const json::Value& body, const Asked& asked = {}) const;
  Result<RenderPlan> render_completion(const json::Value& body, const Asked& asked = {}) const;
  // For the prompt that messages() would make.
  Result<TokenizePlan> count_tokens(const json::Value& body, const Asked& asked = {}) const;
  // Tokens are those of a completion or a chat with the same fields.
  Result<TokenizePlan> tokenize(const json::Value& body, const Asked& asked) const;
  Result<TokenizePlan> detokenize(const json::Value& body, const Asked& asked) const;

  const Options& options() const { return options_; }
  // The format of answers with the model's own template.
  const serving::ChatFormat& format() const { return prompts_.format(); }

 private:
  // What the protocols say of a plan in their own ways.
  struct Parts {
    std::vector<engine::Request> requests;
    serving::TextRules rules;
    RequestCharge charge;
    serving::Notices notices;
  };
  // `fields` may be moved from afterwards, into what make_reply() returns.
  GenerationPlan make_plan(const Asked& asked, const GenerationFields& fields, Parts parts,
                           FunctionRef<std::unique_ptr<Reply>()> make_reply) const;

  RequestSize size_of(const ChatCompletionRequest& request, const serving::ChatPlan& chat) const;
  ApiContext context(const Asked& asked, serving::Notices& notices) const;
  ApiContext tokenize_context(const Asked& asked, serving::Notices& notices) const;

  const text::ModelText& text_;
  Options options_;
  serving::Planner prompts_;
};

}  // namespace motley::server
