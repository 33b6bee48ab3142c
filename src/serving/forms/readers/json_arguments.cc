#include "serving/forms/readers/json_arguments.h"

#include <utility>

#include "base/ascii.h"
#include "base/json/json.h"

namespace motley::serving {
namespace {

std::string_view meaning(std::string_view word) {
  if (word == "True") return "true";
  if (word == "False") return "false";
  return word == "None" ? "null" : word;
}

}  // namespace

void add_escaped(std::string_view text, ParsedOutput& output) {
  std::string escaped;
  json::append_escaped(escaped, text);
  output.add_arguments(escaped);
}

std::string JsonRepair::take(std::string_view text) {
  std::string json;
  for (const char byte : text) {
    if (in_string_)
      take_inside(byte, json);
    else
      take_outside(byte, json);
  }
  return json;
}

std::string JsonRepair::finish() { return std::string(meaning(std::exchange(word_, {}))); }

void JsonRepair::take_inside(char byte, std::string& json) {
  if (static_cast<unsigned char>(byte) < 0x20) {
    std::string escape;
    json::append_escaped(escape, std::string_view(&byte, 1));
    // An existing backslash is not doubled.
    json += std::string_view(escape).substr(escaped_ ? 1 : 0);
    escaped_ = false;
    return;
  }
  in_string_ = escaped_ || byte != '"';
  escaped_ = !escaped_ && byte == '\\';
  json += byte;
}

void JsonRepair::take_outside(char byte, std::string& json) {
  const bool begins_word = byte == 'T' || byte == 'F' || byte == 'N';
  if ((ascii::is_letter(byte) || byte == '_') && (begins_word || !word_.empty())) {
    word_ += byte;
    return;
  }
  json += finish();
  json += byte;
  in_string_ = byte == '"';
}

bool JsonArguments::read(std::string& held, bool last, ParsedOutput& output) {
  const std::size_t bytes = extent_.take(held);
  output.add_arguments(repair_.take(std::string_view(held).substr(0, bytes)));
  held.erase(0, bytes);
  if (!extent_.ended() && !extent_.broken() && !last) return false;
  output.add_arguments(repair_.finish());
  if (extent_.broken()) output.add_arguments(extent_.closing());
  return true;
}

}  // namespace motley::serving
