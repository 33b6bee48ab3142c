#include "base/error.h"

#include "base/cat.h"
#include "base/check.h"

namespace motley {
namespace {

struct Mapping {
  std::string_view name;
  int exit_status;
  int http_status;
};

Mapping mapping(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return {"invalid_argument", 2, 400};
    case ErrorCode::unauthorized:
      return {"unauthorized", 1, 401};
    case ErrorCode::forbidden:
      return {"forbidden", 1, 403};
    case ErrorCode::not_found:
      return {"not_found", 1, 404};
    case ErrorCode::conflict:
      return {"conflict", 1, 409};
    case ErrorCode::timed_out:
      return {"timed_out", 1, 408};
    case ErrorCode::too_long:
      return {"too_long", 1, 413};
    case ErrorCode::busy:
      return {"busy", 1, 429};
    case ErrorCode::cancelled:
      return {"cancelled", 1, 499};
    case ErrorCode::bad_file:
      return {"bad_file", 1, 400};
    case ErrorCode::unsupported:
      return {"unsupported", 1, 400};
    case ErrorCode::not_implemented:
      return {"not_implemented", 2, 501};
    case ErrorCode::unavailable:
      return {"unavailable", 1, 503};
    case ErrorCode::out_of_memory:
      return {"out_of_memory", 1, 503};
    case ErrorCode::storage_full:
      return {"storage_full", 1, 507};
    case ErrorCode::io:
      return {"io", 1, 500};
    case ErrorCode::internal:
      return {"internal", 1, 500};
    case ErrorCode::not_finite:
      return {"non_finite_logits", 1, 500};
  }
  MOTLEY_CHECK(false, "an ErrorCode without a mapping");
}

}  // namespace

int exit_status(ErrorCode code) { return mapping(code).exit_status; }
int http_status(ErrorCode code) { return mapping(code).http_status; }
std::string_view name(ErrorCode code) { return mapping(code).name; }

std::string Error::message() const {
  std::string text = what_;
  if (!where_.empty()) text += cat(" (", where_, ")");
  if (!fix_.empty()) text += cat(": ", fix_);
  return printable(text);
}

Error Error::within(std::string_view outer) && {
  where_ = where_.empty() ? std::string(outer) : cat(outer, ", ", where_);
  return std::move(*this);
}

Error Error::as(ErrorCode code) && {
  code_ = code;
  return std::move(*this);
}

}  // namespace motley
