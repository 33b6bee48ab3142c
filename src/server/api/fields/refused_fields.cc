#include "server/api/fields/refused_fields.h"

#include <algorithm>
#include <array>

#include "base/cat.h"

namespace motley::server {
namespace {

constexpr std::array<RefusedField, 11> unsupported = {{
    {"use_beam_search", Neutral::off, "beam search"},
    {"length_penalty", Neutral::one, "a penalty of beam search"},
    {"early_stopping", Neutral::off, "a rule of beam search"},
    {"audio", Neutral::none, "an answer in sound"},
    {"modalities", Neutral::text_only, "an answer other than text"},
    {"web_search_options", Neutral::none, "a search in the web"},
    {"logits_processors", Neutral::empty, "processors of logits"},
    {"mm_processor_kwargs", Neutral::empty, "arguments of a processor of images"},
    {"media_io_kwargs", Neutral::empty, "arguments of a reader of media"},
    {"prompt_embeds", Neutral::none, "a prompt in vectors"},
    {"guided_whitespace_pattern", Neutral::none, "a pattern of white space"},
}};

bool is_empty(const json::Value& value) {
  if (value.if_string() != nullptr) return value.if_string()->empty();
  if (value.if_array() != nullptr) return value.if_array()->empty();
  return value.if_object() != nullptr && value.if_object()->empty();
}

bool asks_for_nothing(const json::Value& value, Neutral neutral) {
  switch (neutral) {
    case Neutral::none:
      return false;
    case Neutral::off:
      return value.if_boolean() != nullptr && !*value.if_boolean();
    case Neutral::one: {
      const auto number = value.as_number("");
      return number.ok() && *number == 1;
    }
    case Neutral::empty:
      return is_empty(value);
    case Neutral::text_only:
      return value.if_array() != nullptr &&
             std::ranges::all_of(*value.if_array(), [](const json::Value& each) {
               return each.if_string() != nullptr && *each.if_string() == "text";
             });
  }
  return false;
}

}  // namespace

Result<void> refuse(Fields& fields, std::span<const RefusedField> refused) {
  for (const RefusedField& each : refused) {
    const json::Value* const value = fields.take(each.name);
    if (value != nullptr && !asks_for_nothing(*value, each.neutral))
      return Error(ErrorCode::unsupported, cat(each.what, " is not something this server does"),
                   fields.place(each.name), "leave it out");
  }
  return {};
}

Result<void> refuse_unsupported(Fields& fields, int choices) {
  MOTLEY_TRY_VOID(refuse(fields, unsupported));
  MOTLEY_TRY(const auto best_of, fields.integer("best_of"));
  if (best_of && *best_of > choices)
    return Error(ErrorCode::unsupported, "choosing the best of several", "best_of",
                 "leave it out, or make it n at most");
  return {};
}

}  // namespace motley::server
