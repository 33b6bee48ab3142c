#pragma once

#include "base/result.h"
#include "serving/prompts/chat_request.h"
#include "serving/prompts/generation_settings.h"
#include "serving/prompts/notices.h"

// Parts of a request's schemas that no grammar enforces: noted by their place in the body. If the
// client calls the schema strict, they are errors.
namespace motley::serving {

// For the form of the content.
Result<void> note_unenforced(const GenerationSettings& settings, Notices& notices);

// For the arguments of calls that a grammar constrains.
Result<void> note_unenforced_arguments(const ChatRequest& request, Notices& notices);

// For functions that say "strict" where no grammar can express the model's calls: the whole schema.
void note_free_calls(const ChatRequest& request, Notices& notices);

}  // namespace motley::serving
