#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/requests/sampling_params.h"
#include "serving/forms/chat_format.h"
#include "serving/forms/special_tokens.h"
#include "serving/prompts/chat_request.h"
#include "serving/prompts/generation_settings.h"

namespace motley::serving {

// Forces an answer to consist of tool calls: in the form that the model was trained on if a grammar
// can express it, else as JSON.
struct ForcedCalls {
  std::string opening;  // appended to the prompt, as if the model had written it
  grammar::Spec grammar;

  // How such an answer is parsed.
  enum class Read : std::uint8_t {
    arguments,  // of the function that was named
    list,       // of {"name", "parameters"}
    native,     // as the model's own calls, with `head` first
  };
  Read read = Read::arguments;
  std::string head = {};
};

// `prompt` is the rendered conversation, `special` all special tokens of the tokenizer. The request
// has `tools`, and requires calls.
ForcedCalls force_calls(const ChatRequest& request, const ChatFormat& format,
                        std::span<const SpecialToken> special, std::string_view prompt);

// Constrains the calls of a model that decides by itself whether to make any to their schemas, if a
// function says "strict" and a grammar can express the model's form. Other text is free.
std::optional<grammar::Spec> strict_calls(const ChatRequest& request, const ChatFormat& format,
                                          std::span<const SpecialToken> special);

// Lets a model that may call tools either do so or answer in the requested form. Nothing if no form
// is requested, or if calls cannot be recognised in it: the answer has the form then.
Result<std::optional<ForcedCalls>> calls_or_form(const ChatRequest& request,
                                                 const GenerationSettings& settings,
                                                 const ChatFormat& format,
                                                 std::span<const SpecialToken> special,
                                                 std::string_view prompt);

std::unique_ptr<OutputParser> make_forced_parser(const ForcedCalls& forced,
                                                 const ChatRequest& request,
                                                 const ChatFormat& format);

}  // namespace motley::serving
