#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/sampling/sampling_params.h"
#include "server/api/chat/chat_completion_request.h"
#include "server/output/chat_format.h"
#include "server/output/special_tokens.h"

namespace motley::server {

// How an answer is made to be calls of tools: the form in which the model has learnt to write them
// where a grammar can follow that, else JSON of our own.
struct ForcedCalls {
  std::string opening;  // stands behind the prompt, as if the model had written it
  engine::GrammarSpec grammar;

  // What reads an answer of that form.
  enum class Read : std::uint8_t {
    arguments,  // of the function that was named
    list,       // of {"name", "parameters"}
    native,     // as the model's own calls, with `head` first
  };
  Read read = Read::arguments;
  std::string head = {};
};

// `prompt` is the rendered conversation, `special` all special tokens of the tokenizer. The request
// has `tools`, and must call some of them.
ForcedCalls force_calls(const ChatCompletionRequest& request, const ChatFormat& format,
                        std::span<const SpecialToken> special, std::string_view prompt);

// What holds the calls of a model that decides by itself whether to make any to their schemas,
// where a function says "strict" and a grammar can write the model's form: other text is free.
std::optional<engine::GrammarSpec> strict_calls(const ChatCompletionRequest& request,
                                                const ChatFormat& format,
                                                std::span<const SpecialToken> special);

// What lets a model that may call tools either do so or answer in the form that the request asks
// for. Nothing where the request has no such form, or calls can't be recognised in it: the answer
// has the form then.
Result<std::optional<ForcedCalls>> calls_or_form(const ChatCompletionRequest& request,
                                                 const ChatFormat& format,
                                                 std::span<const SpecialToken> special,
                                                 std::string_view prompt);

std::unique_ptr<OutputParser> make_forced_parser(const ForcedCalls& forced,
                                                 const ChatCompletionRequest& request,
                                                 const ChatFormat& format);

}  // namespace motley::server
