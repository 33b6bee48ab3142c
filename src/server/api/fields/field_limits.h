#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "engine/requests/request.h"
#include "server/http/messages/message.h"

// What the fields of a request may hold at most. docs/guide/http.md has the same table ("How much a
// field holds"), and field_limits_test.cc says what it lacks.
namespace motley::server {

struct FieldLimit {
  std::string_view field;
  std::size_t most = 0;
  std::string_view of;
};

namespace field_limits {

inline constexpr FieldLimit messages{"`messages`, `input`", 10'000, "messages or items"};
inline constexpr FieldLimit tools{"`tools`", 1000, "tools"};
inline constexpr FieldLimit chat_template{"`chat_template`", 262'144, "bytes"};
inline constexpr FieldLimit prompts{"`prompt`", 1024, "prompts"};
inline constexpr FieldLimit prompt_tokens{"`prompt`", 2'000'000, "tokens of all prompts"};
inline constexpr FieldLimit tokenized{"`prompt` of `/tokenize`", 2'000'000, "tokens"};
inline constexpr FieldLimit choices{"`n`", static_cast<std::size_t>(engine::max_choices),
                                    "answers to a prompt"};
inline constexpr FieldLimit sequences{"`prompt` and `n`", 4096, "answers in all"};
inline constexpr FieldLimit adapters{"`adapters`", 16, "adapters"};
inline constexpr FieldLimit stops{"`stop`", 16, "strings"};
inline constexpr FieldLimit stop_bytes{"`stop`", 1000, "bytes a string"};
inline constexpr FieldLimit logit_biases{"`logit_bias`", 1000, "tokens"};
inline constexpr FieldLimit bad_words{"`bad_words`", 1000, "words"};
inline constexpr FieldLimit bad_word_bytes{"`bad_words`", 1000, "bytes a word"};
inline constexpr FieldLimit bad_word_tokens{"`bad_words`", 10'000, "tokens of all words"};
inline constexpr FieldLimit guided_choices{"`guided_choice`, `triggers`", 1000, "strings"};
inline constexpr FieldLimit includes{"`include`", 100, "names"};
inline constexpr FieldLimit cache_salt{"`cache_salt`", 1024, "characters"};
inline constexpr FieldLimit request_id{"`request_id`", max_request_id_bytes, "characters"};
inline constexpr FieldLimit lora_path{"`lora_path`", 4096, "bytes"};

inline constexpr std::array all = {messages,      tools,          chat_template,   prompts,
                                   prompt_tokens, tokenized,      choices,         sequences,
                                   adapters,      stops,          stop_bytes,      logit_biases,
                                   bad_words,     bad_word_bytes, bad_word_tokens, guided_choices,
                                   includes,      cache_salt,     request_id,      lora_path};

}  // namespace field_limits
}  // namespace motley::server
