#pragma once

#include "base/result.h"
#include "server/api/chat/chat_completion_request.h"
#include "server/api/fields/generation_fields.h"

// Parts of a request's schemas that no grammar enforces: noted by their place in the body. If the
// client calls the schema strict, they are errors.
namespace motley::server {

// For the form of the content.
Result<void> note_unenforced(const GenerationFields& fields, Notices& notices);

// For the arguments of calls that a grammar constrains.
Result<void> note_unenforced_arguments(const ChatCompletionRequest& request, Notices& notices);

// For functions that say "strict" where no grammar can express the model's calls: the whole schema.
void note_free_calls(const ChatCompletionRequest& request, Notices& notices);

}  // namespace motley::server
