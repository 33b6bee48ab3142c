#pragma once

#include "base/result.h"
#include "server/api/chat/chat_completion_request.h"
#include "server/api/fields/generation_fields.h"

// What the schemas of a request ask for and no grammar holds: noted by its place in the body. Where
// the client calls a schema strict it is an error that names it.
namespace motley::server {

// Of the form that the content must have.
Result<void> note_unenforced(const GenerationFields& fields, Notices& notices);

// Of the arguments of calls that a grammar holds to their schemas.
Result<void> note_unenforced_arguments(const ChatCompletionRequest& request, Notices& notices);

// Of functions that say "strict" where no grammar can write the model's calls: all they ask for.
void note_free_calls(const ChatCompletionRequest& request, Notices& notices);

}  // namespace motley::server
