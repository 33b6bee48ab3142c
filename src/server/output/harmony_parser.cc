#include "server/output/harmony_parser.h"

#include <array>
#include <utility>

#include "base/cat.h"
#include "server/output/tag_search.h"

namespace motley::server {
namespace {

constexpr std::string_view message_tag = "<|message|>";
constexpr std::string_view channel_tag = "<|channel|>";
constexpr std::string_view function_prefix = "to=functions.";
// What ends a body. A new message may begin without the end of the last.
constexpr std::array<std::string_view, 4> end_tags = {"<|end|>", "<|call|>", "<|return|>",
                                                      "<|start|>"};

// Up to white space or the next tag.
std::string_view word_at(std::string_view text) {
  return text.substr(0, text.find_first_of(" \t\r\n<"));
}

}  // namespace

ParsedOutput HarmonyParser::push(std::string_view piece) {
  ParsedOutput output;
  held_ += piece;
  while (advance(output)) {
  }
  return output;
}

bool HarmonyParser::advance(ParsedOutput& output) {
  if (in_head_) {
    const std::size_t end = held_.find(message_tag);
    if (end == std::string::npos) return false;
    read_head(std::string_view(held_).substr(0, end));
    held_.erase(0, end + message_tag.size());
    in_head_ = false;
    return true;
  }
  std::size_t end = std::string::npos;
  std::string_view end_tag;
  std::size_t begun = 0;
  for (const std::string_view tag : end_tags) {
    const std::size_t at = held_.find(tag);
    if (at < end) end = at, end_tag = tag;
    begun = std::max(begun, begun_tag(held_, tag));
  }
  if (end == std::string::npos) {
    const std::size_t certain = held_.size() - begun;
    take_body(std::string_view(held_).substr(0, certain), output);
    held_.erase(0, certain);
    return false;
  }
  take_body(std::string_view(held_).substr(0, end), output);
  held_.erase(0, end + end_tag.size());
  end_body(output);
  in_head_ = true;
  return true;
}

void HarmonyParser::read_head(std::string_view head) {
  function_.clear();
  arguments_.clear();
  call_begun_ = false;
  part_ = Part::content;
  const std::size_t channel = head.find(channel_tag);
  if (channel != std::string_view::npos &&
      word_at(head.substr(channel + channel_tag.size())) == "analysis")
    part_ = Part::reasoning;
  const std::size_t recipient = head.find(function_prefix);
  if (recipient == std::string_view::npos) return;
  function_ = word_at(head.substr(recipient + function_prefix.size()));
  if (!function_.empty()) part_ = Part::call;
}

void HarmonyParser::take_body(std::string_view text, ParsedOutput& output) {
  switch (part_) {
    case Part::reasoning:
      output.reasoning += text;
      break;
    case Part::content:
      output.content += text;
      break;
    case Part::call:
      take_arguments(text, output);
  }
}

void HarmonyParser::take_arguments(std::string_view text, ParsedOutput& output) {
  if (call_begun_) return output.add_arguments(text);
  arguments_ += text;
  const std::size_t spaces = leading_space(arguments_);
  if (spaces == arguments_.size()) return;
  if (arguments_[spaces] != '{') {
    part_ = Part::content;
    output.content += arguments_;
    return;
  }
  call_begun_ = true;
  output.begin_call(function_);
  output.add_arguments(arguments_);
}

void HarmonyParser::end_body(ParsedOutput& output) {
  if (part_ != Part::call || call_begun_) return;
  output.begin_call(function_);
  output.add_arguments("{}");
}

ParsedOutput HarmonyParser::finish() {
  ParsedOutput output;
  // A head alone says nothing.
  if (in_head_) return output;
  take_body(held_, output);
  end_body(output);
  return output;
}

}  // namespace motley::server
