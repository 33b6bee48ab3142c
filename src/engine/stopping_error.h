#pragma once

#include "base/error.h"

namespace motley::engine {

// The error of calls that come while an engine stops. Allocates.
inline Error stopping_error() {
  return {ErrorCode::unavailable, "the server is shutting down", {}, "ask another one"};
}

}  // namespace motley::engine
