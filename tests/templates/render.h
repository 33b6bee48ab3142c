#pragma once

#include <string_view>

#include "base/json/json.h"
#include "base/result.h"
#include "text/chat/chat_template.h"
#include "text/chat/marked_text.h"

namespace motley::text {

// The clock that the goldens were made by: 2026-07-14 09:05:03.
std::tm golden_time();

// A template with the functions that every template has and these variables, all untrusted.
Result<MarkedText> render(std::string_view source, const json::Value& variables,
                          const RenderLimits& limits = {});

// The same without variables, its text alone.
Result<std::string> render_text(std::string_view source, const RenderLimits& limits = {});

// JSON that is known to be right.
json::Value json_of(std::string_view text);

}  // namespace motley::text
