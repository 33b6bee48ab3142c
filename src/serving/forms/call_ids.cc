#include "serving/forms/call_ids.h"

#include "base/cat.h"
#include "base/system/random_id.h"

namespace motley::serving {

ParsedOutput CallIdParser::with_ids(ParsedOutput output) {
  for (CallPiece& piece : output.calls) {
    if (!piece.begins) continue;
    if (piece.id.empty() && ids_ == CallIds::nine_characters) piece.id = random_id().substr(0, 9);
    if (piece.id.empty() && ids_ == CallIds::as_written)
      piece.id = cat("functions.", piece.name, ":", calls_);
    ++calls_;
  }
  return output;
}

}  // namespace motley::serving
