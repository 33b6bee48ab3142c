#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/request.h"
#include "server/api/generation_fields.h"
#include "server/api/reply.h"
#include "server/output/chat_format.h"
#include "text/model_text.h"

namespace motley::server {

// What a body is turned into before the engine hears of it.
struct GenerationPlan {
  std::vector<engine::Request> requests;  // one a prompt
  std::size_t choices = 1;                // of each
  bool stream = false;
  TextRules rules;
  std::string_view grammar_field;      // of the body, where that fixes the output's form
  std::shared_ptr<const void> source;  // what the reply refers to
  std::unique_ptr<Reply> reply;
};

// Bodies to plans: checks, renders and tokenises. Used from many threads at once.
class GenerationPlanner {
 public:
  struct Options {
    std::string base;  // the id of the base model
    std::int64_t vocabulary = 0;
    std::int64_t max_sequence_tokens = 0;
    bool special_in_said = false;  // special tokens in messages are what they look like
  };

  // The model's text must outlive the planner.
  GenerationPlanner(const text::ModelText& text, Options options);

  Result<GenerationPlan> completion(const json::Value& body) const;
  Result<GenerationPlan> chat(const json::Value& body) const;

  const Options& options() const { return options_; }

 private:
  ApiContext context() const { return {options_.base, options_.vocabulary, &text_.generation()}; }
  Result<void> check_length(std::size_t prompt_tokens, const GenerationFields& fields,
                            std::string_view place) const;
  engine::Request request_for(std::vector<std::int32_t> tokens,
                              const GenerationFields& fields) const;
  TextRules rules_for(const GenerationFields& fields) const;

  const text::ModelText& text_;
  Options options_;
  ChatFormat format_;
};

}  // namespace motley::server
