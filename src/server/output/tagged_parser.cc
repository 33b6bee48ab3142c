#include "server/output/tagged_parser.h"

#include <utility>

#include "base/cat.h"
#include "server/output/tag_search.h"

namespace motley::server {
namespace {

constexpr std::string_view think_begin = "<think>";
constexpr std::string_view think_end = "</think>";

}  // namespace

TaggedParser::TaggedParser(Options options) : options_(std::move(options)) {
  if (options_.begins_reasoning) {
    state_ = State::reasoning;
    skip_spaces_ = true;
  } else {
    state_ = options_.reasoning ? State::start : State::content;
  }
}

ParsedOutput TaggedParser::push(std::string_view piece) {
  ParsedOutput output;
  held_ += piece;
  while (advance(output)) {
  }
  return output;
}

bool TaggedParser::advance(ParsedOutput& output) {
  if (skip_spaces_) {
    held_.erase(0, leading_space(held_));
    if (held_.empty()) return false;
    skip_spaces_ = false;
  }
  switch (state_) {
    case State::start:
      return in_start(output);
    case State::reasoning:
      return in_reasoning(output);
    case State::content:
      return in_content(output);
    case State::call:
      return in_call(output);
  }
  MOTLEY_CHECK(false, "a state that nobody advances from");
}

// Reasoning comes first or not at all.
bool TaggedParser::in_start(ParsedOutput&) {
  const std::size_t spaces = leading_space(held_);
  const std::string_view text = std::string_view(held_).substr(spaces);
  if (text.size() < think_begin.size() && think_begin.starts_with(text)) return false;
  if (text.starts_with(think_begin)) {
    held_.erase(0, spaces + think_begin.size());
    state_ = State::reasoning;
    skip_spaces_ = true;
  } else {
    state_ = State::content;
  }
  return true;
}

bool TaggedParser::in_reasoning(ParsedOutput& output) {
  const std::size_t end = held_.find(think_end);
  if (end != std::string::npos) {
    output.reasoning += held_.substr(0, trailing_space(std::string_view(held_).substr(0, end)));
    held_.erase(0, end + think_end.size());
    state_ = State::content;
    skip_spaces_ = true;
    return true;
  }
  const std::string_view certain =
      std::string_view(held_).substr(0, held_.size() - begun_tag(held_, think_end));
  const std::size_t bytes = trailing_space(certain);
  output.reasoning += held_.substr(0, bytes);
  held_.erase(0, bytes);
  return false;
}

bool TaggedParser::in_content(ParsedOutput& output) {
  if (!options_.calls) {
    output.content += std::exchange(held_, {});
    return false;
  }
  const std::size_t begin = held_.find(call_begin);
  if (begin != std::string::npos) {
    output.content += held_.substr(0, trailing_space(std::string_view(held_).substr(0, begin)));
    held_.erase(0, begin + call_begin.size());
    state_ = State::call;
    reader_ = make_call_reader(*options_.calls, options_.schemas);
    return true;
  }
  const std::string_view certain =
      std::string_view(held_).substr(0, held_.size() - begun_tag(held_, call_begin));
  const std::size_t bytes = trailing_space(certain);
  output.content += held_.substr(0, bytes);
  held_.erase(0, bytes);
  return false;
}

bool TaggedParser::in_call(ParsedOutput& output) {
  const CallReader::Progress progress = reader_->read(held_, false, output);
  if (progress == CallReader::Progress::more) return false;
  leave_call(progress, output);
  return true;
}

void TaggedParser::leave_call(CallReader::Progress progress, ParsedOutput& output) {
  state_ = State::content;
  if (progress == CallReader::Progress::none)
    output.content += call_begin;
  else
    skip_spaces_ = true;
}

ParsedOutput TaggedParser::finish() {
  ParsedOutput output;
  // Models leave the last tag out where it is a token that ends the answer.
  while (state_ == State::call) {
    leave_call(reader_->read(held_, true, output), output);
    while (advance(output)) {
    }
  }
  if (skip_spaces_) held_.erase(0, leading_space(held_));
  if (state_ == State::reasoning)
    output.reasoning += held_.substr(0, trailing_space(held_));
  else
    output.content += held_;
  held_.clear();
  return output;
}

}  // namespace motley::server
