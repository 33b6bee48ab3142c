#pragma once

#include <string>
#include <string_view>

#include "serving/forms/output_parser.h"
#include "serving/forms/tool_call.h"

namespace motley::serving {

// Adds a part of a string, escaped; the quotes are already there.
void add_escaped(std::string_view text, ParsedOutput& output);

// Repairs what models write as JSON while it arrives: escapes line ends and tabs inside strings,
// and replaces Python's words. Valid JSON stays as it is, byte for byte.
class JsonRepair {
 public:
  std::string take(std::string_view text);
  // The rest, at the end of the text or when no more is expected.
  std::string finish();

 private:
  void take_inside(char byte, std::string& json);
  void take_outside(char byte, std::string& json);

  bool in_string_ = false;
  bool escaped_ = false;
  std::string word_;  // that may be one of Python's
};

// Reads the arguments of a call, an object, as they arrive.
class JsonArguments {
 public:
  // Consumes the arguments from the front of `held`; false if more text is needed. They end at a
  // mark, and open brackets are closed there.
  bool read(std::string& held, bool last, ParsedOutput& output);
  // By their own closing brace.
  bool ended() const { return extent_.ended(); }

 private:
  JsonExtent extent_;
  JsonRepair repair_;
};

}  // namespace motley::serving
