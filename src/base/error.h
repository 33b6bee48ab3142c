#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace motley {

// Kinds of errors, as far as a caller can act on them. A user, a file or a request can cause each
// of these except `internal`; broken invariants of our own code abort instead (base/check.h).
enum class ErrorCode : std::uint8_t {
  invalid_argument,  // the call, the option or the request's field is wrong
  unauthorized,      // a key is required, and the request has none or a wrong one
  forbidden,         // disabled by the server's options
  not_found,         // no such file, model, adapter or route
  conflict,          // the version that the request expects is not the present one
  timed_out,         // the client was too slow
  too_long,          // more bytes or tokens than allowed
  busy,              // no room now: a queue, memory or a limit; try again later
  cancelled,         // the client went away
  bad_file,          // a file is damaged, inconsistent or not what its name says
  unsupported,       // recognised, but not supported by motley
  not_implemented,   // promised by the contract, and not there yet
  unavailable,       // starting or shutting down
  out_of_memory,     // host, device, pages or disk
  storage_full,      // a disk has no room for what a request sends
  io,                // the operating system reported an error
  internal,          // the work was lost for no reason in its input
  not_finite,        // a model's or an adapter's numbers overflow
};

// Status of a process: 0 done, 1 the work failed, 2 the call is wrong.
int exit_status(ErrorCode code);

int http_status(ErrorCode code);

// Stable name for logs and for the `code` field of HTTP errors, e.g. "bad_file".
std::string_view name(ErrorCode code);

// An error says what happened, where (a file, a tensor, a field), and what to do about it.
class Error {
 public:
  Error(ErrorCode code, std::string what, std::string where = {}, std::string fix = {})
      : code_(code), what_(std::move(what)), where_(std::move(where)), fix_(std::move(fix)) {}

  ErrorCode code() const { return code_; }
  const std::string& what() const { return what_; }
  const std::string& where() const { return where_; }
  const std::string& fix() const { return fix_; }

  // "<what> (<where>): <what to do>" on one line: control characters, which names from files may
  // hold, are written as escapes. Parts that are empty are left out.
  std::string message() const;

  // The same error with an outer place: "tensor 'x'" becomes "model.safetensors, tensor 'x'".
  Error within(std::string_view outer) &&;

  // The same error with another code: an invalid argument of a parser is a bad file for its caller.
  Error as(ErrorCode code) &&;

 private:
  ErrorCode code_;
  std::string what_;
  std::string where_;
  std::string fix_;
};

}  // namespace motley
