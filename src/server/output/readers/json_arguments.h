#pragma once

#include <string>
#include <string_view>

#include "server/output/output_parser.h"
#include "server/output/tool_call.h"

namespace motley::server {

// Adds a part of a string, whose quotes stand around it.
void add_escaped(std::string_view text, ParsedOutput& output);

// Makes JSON of what models take for it, as it comes: line ends and tabs inside strings are
// escaped, and Python's words are JSON's. What is JSON stays as it is, byte for byte.
class JsonRepair {
 public:
  std::string take(std::string_view text);
  // The rest, where the text ends or stands still.
  std::string finish();

 private:
  void take_inside(char byte, std::string& json);
  void take_outside(char byte, std::string& json);

  bool in_string_ = false;
  bool escaped_ = false;
  std::string word_;  // that may be one of Python's
};

// The arguments of a call, an object, as they come.
class JsonArguments {
 public:
  // Takes what belongs to them off the front of `held`; false where more must come. Where a mark
  // stands in them they end, and what is open is closed.
  bool read(std::string& held, bool last, ParsedOutput& output);
  // By a brace of their own.
  bool ended() const { return extent_.ended(); }

 private:
  JsonExtent extent_;
  JsonRepair repair_;
};

}  // namespace motley::server
