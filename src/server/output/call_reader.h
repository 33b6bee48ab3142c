#pragma once

#include <memory>
#include <string>

#include "server/output/output_parser.h"
#include "server/output/tool_call.h"

namespace motley::server {

inline constexpr std::string_view call_begin = "<tool_call>";
inline constexpr std::string_view call_end = "</tool_call>";

// Reads one call as it comes, from behind <tool_call> to behind </tool_call>. A call begins as soon
// as it is sure to be one, which is where its arguments do.
class CallReader {
 public:
  enum class Progress : std::uint8_t {
    more,  // goes on when more has come
    done,  // behind the call
    none,  // there is no call, and `held` is as it was
  };

  virtual ~CallReader() = default;

  // Uses up text from the front of `held`. `last`: no more comes behind it.
  virtual Progress read(std::string& held, bool last, ParsedOutput& output) = 0;
};

// The schemas must outlive the reader.
std::unique_ptr<CallReader> make_call_reader(CallSyntax syntax, const ToolSchemas& schemas);

}  // namespace motley::server
