#include "serving/forms/harmony_parser.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/cat.h"
#include "serving/forms/tag_search.h"

namespace motley::serving {
namespace {

constexpr std::string_view start_mark = "<|start|>";
constexpr std::string_view channel_mark = "<|channel|>";
constexpr std::string_view constrain_mark = "<|constrain|>";
constexpr std::string_view message_mark = "<|message|>";
constexpr std::array<std::string_view, 7> marks = {
    start_mark, channel_mark, constrain_mark, message_mark, "<|end|>", "<|call|>", "<|return|>"};

constexpr std::string_view role = "assistant";
constexpr std::string_view recipient_prefix = "to=";
constexpr std::string_view function_prefix = "functions.";
constexpr std::array<std::string_view, 3> channels = {"analysis", "commentary", "final"};
constexpr std::array<std::string_view, 2> formats = {"json", "code"};

// A longer word is no recipient.
constexpr std::size_t max_word = 256;
// Text in a head that is not part of the form waits for <|message|> up to this many bytes. A longer
// text is the body of a message whose mark is missing.
constexpr std::size_t max_rest = 64;

// The mark at the begin of a text.
std::string_view mark_at(std::string_view text) {
  const auto* const mark =
      std::ranges::find_if(marks, [text](std::string_view each) { return text.starts_with(each); });
  return mark == marks.end() ? std::string_view() : *mark;
}

// The number of bytes before the first mark, or before what may become one.
std::size_t bytes_before_mark(std::string_view text) {
  std::size_t at = text.find('<');
  for (; at != std::string_view::npos; at = text.find('<', at + 1)) {
    const std::string_view rest = text.substr(at);
    const bool begins_mark = std::ranges::any_of(marks, [rest](std::string_view mark) {
      return rest.starts_with(mark) || mark.starts_with(rest);
    });
    if (begins_mark) return at;
  }
  return text.size();
}

bool holds(std::span<const std::string_view> words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

bool holds_beginning(std::span<const std::string_view> words, std::string_view begun) {
  return std::ranges::any_of(words,
                             [begun](std::string_view word) { return word.starts_with(begun); });
}

std::string_view word_at(std::string_view text) {
  return text.substr(0, text.find_first_of(white_space));
}

}  // namespace

ParsedOutput HarmonyParser::push(std::string_view piece) {
  ParsedOutput output;
  held_ += piece;
  std::string_view text = held_;
  while (advance(text, output)) {
  }
  held_.erase(0, held_.size() - text.size());
  return output;
}

bool HarmonyParser::advance(std::string_view& text, ParsedOutput& output) {
  if (const std::string_view mark = mark_at(text); !mark.empty()) {
    text.remove_prefix(mark.size());
    take_mark(mark, output);
    return true;
  }
  const std::size_t bytes = bytes_before_mark(text);
  if (bytes == 0) return false;
  const bool ended = !mark_at(text.substr(bytes)).empty();
  const std::size_t taken = take_text(text.substr(0, bytes), ended, output);
  text.remove_prefix(taken);
  return taken > 0;
}

void HarmonyParser::take_mark(std::string_view mark, ParsedOutput& output) {
  const bool in_head = mark == channel_mark || mark == constrain_mark || mark == message_mark;
  if (!in_head) {
    end_message(mark == start_mark, output);
    head_ = {};
    at_ = mark == start_mark ? At::head : At::opening;
    seen_mark_ = true;
    return;
  }
  seen_mark_ = true;
  if (at_ == At::body) {
    // Other marks in a head are repetitions or errors.
    if (mark != channel_mark) return;
    end_message(false, output);
    head_ = {};
  }
  at_ = At::head;
  if (mark == message_mark) {
    take_leftover(output);
    begin_body(output);
    return;
  }
  head_.in_rest = false;
  head_.has_mark = true;
  head_.allows_role = false;
  (mark == channel_mark ? head_.allows_channel : head_.allows_format) = true;
}

std::size_t HarmonyParser::take_text(std::string_view text, bool ended, ParsedOutput& output) {
  if (at_ == At::body) {
    take_body(text, output);
    return text.size();
  }
  if (head_.in_rest) {
    head_.rest += text;
    if (head_.rest.size() > max_rest) begin_body(output);
    return text.size();
  }
  std::size_t taken = leading_space(text);
  if (taken == 0) {
    const std::string_view word = word_at(text);
    const bool is_whole = ended || word.size() < text.size();
    if (!is_whole && may_become_word(word)) return 0;
    if (!is_whole || !take_word(word)) {
      take_unknown(word, output);
      return take_text(text, ended, output);
    }
    taken = word.size();
  }
  if (at_ == At::opening) head_.words += text.substr(0, taken);
  return taken;
}

// A word that is not part of the form: it begins a body, or may begin one.
void HarmonyParser::take_unknown(std::string_view word, ParsedOutput& output) {
  const bool is_object = word.starts_with('{');
  if (at_ == At::opening) {
    if (!is_object || !surely_calls()) {
      std::string words = std::move(head_.words);
      head_ = {};
      head_.rest = std::move(words);
    }
    begin_body(output);
  } else if (is_object && !head_.recipient.empty()) {
    take_leftover(output);
    begin_body(output);
  } else if (head_.has_mark) {
    head_.in_rest = true;
  } else {
    begin_body(output);
  }
}

bool HarmonyParser::take_word(std::string_view word) {
  std::string_view channel = word;
  bool is_role = false;
  if (head_.allows_role && word.starts_with(role)) {
    // The mark between role and channel may be missing.
    channel.remove_prefix(role.size());
    is_role = channel.empty();
  }
  if (is_role) {
    // The role of all messages.
  } else if (head_.allows_channel && holds(channels, channel)) {
    head_.channel = channel == channels.front() ? Channel::analysis : Channel::other;
    head_.allows_channel = false;
  } else if (word.starts_with(recipient_prefix) && word.size() <= max_word) {
    if (!take_recipient(word.substr(recipient_prefix.size()))) return false;
  } else if (holds(formats, word) && !head_.has_format &&
             (head_.allows_format || !head_.recipient.empty())) {
    head_.has_format = true;
  } else {
    return false;
  }
  head_.allows_role = false;
  return true;
}

bool HarmonyParser::take_recipient(std::string_view name) {
  if (name == role || name == "user") return true;
  if (name.empty() || name == function_prefix) return false;
  if (head_.recipient.empty()) head_.recipient = name;
  return head_.recipient == name;
}

bool HarmonyParser::may_become_word(std::string_view begun) const {
  if (recipient_prefix.starts_with(begun)) return true;
  if (begun.starts_with(recipient_prefix)) return begun.size() <= max_word;
  if (head_.allows_role) {
    if (role.starts_with(begun)) return true;
    if (begun.starts_with(role) && holds_beginning(channels, begun.substr(role.size())))
      return true;
  }
  if (head_.allows_channel && holds_beginning(channels, begun)) return true;
  return (head_.allows_format || !head_.recipient.empty()) && holds_beginning(formats, begun);
}

// Whether an opening is a head even if no mark follows.
bool HarmonyParser::surely_calls() const { return head_.recipient.starts_with(function_prefix); }

// Handles a head's text that is not part of the form, once <|message|> has arrived. A recipient may
// follow a channel that the form does not have.
void HarmonyParser::take_leftover(ParsedOutput& output) {
  std::string leftover;
  std::string_view rest = head_.rest;
  while (!rest.empty()) {
    const std::string_view word = word_at(rest);
    const bool is_recipient = word.starts_with(recipient_prefix) && take_word(word);
    if (!is_recipient && !holds(formats, word)) {
      if (!leftover.empty()) leftover += ' ';
      leftover += word;
    }
    rest.remove_prefix(word.size());
    rest.remove_prefix(leading_space(rest));
  }
  head_.rest.clear();
  output.add_reasoning(leftover);
}

void HarmonyParser::begin_body(ParsedOutput& output) {
  at_ = At::body;
  part_ = !head_.recipient.empty()             ? Part::call
          : head_.channel == Channel::analysis ? Part::reasoning
                                               : Part::content;
  arguments_.clear();
  call_begun_ = false;
  take_body(std::exchange(head_.rest, {}), output);
}

void HarmonyParser::take_body(std::string_view text, ParsedOutput& output) {
  switch (part_) {
    case Part::reasoning:
      output.add_reasoning(text);
      break;
    case Part::content:
      output.add_content(text);
      break;
    case Part::call:
      take_arguments(text, output);
  }
}

void HarmonyParser::take_arguments(std::string_view text, ParsedOutput& output) {
  if (call_begun_) return output.add_arguments(text);
  arguments_ += text;
  if (leading_space(arguments_) == arguments_.size()) return;
  call_begun_ = true;
  begin_call(output);
  output.add_arguments(arguments_);
}

void HarmonyParser::begin_call(ParsedOutput& output) const {
  std::string_view name = head_.recipient;
  if (name.starts_with(function_prefix)) name.remove_prefix(function_prefix.size());
  output.begin_call(name);
}

void HarmonyParser::end_message(bool by_start, ParsedOutput& output) {
  if (at_ == At::opening) return end_opening(output);
  if (at_ == At::head) {
    if (by_start && head_.rest.empty() && !head_.recipient.empty()) {
      // The head was restarted: no call was meant.
      output.add_content(cat(recipient_prefix, head_.recipient));
      return;
    }
    begin_body(output);
  }
  if (part_ != Part::call || call_begun_) return;
  begin_call(output);
  output.add_arguments("{}");
}

void HarmonyParser::end_opening(ParsedOutput& output) {
  if (surely_calls()) {
    begin_call(output);
    output.add_arguments("{}");
    return;
  }
  // An answer may contain a word of the form. After a mark it is the form's.
  const bool is_form = seen_mark_ && head_.recipient.empty();
  if (!is_form && leading_space(head_.words) < head_.words.size()) output.add_content(head_.words);
}

OutputSection HarmonyParser::section() const {
  if (at_ != At::body) return OutputSection::form;
  switch (part_) {
    case Part::reasoning:
      return OutputSection::reasoning;
    case Part::content:
      return OutputSection::content;
    case Part::call:
      break;
  }
  return OutputSection::call;
}

ParsedOutput HarmonyParser::finish() {
  ParsedOutput output;
  std::string_view text = held_;
  for (std::size_t bytes = bytes_before_mark(text); bytes > 0;) {
    const std::size_t taken = take_text(text.substr(0, bytes), true, output);
    text.remove_prefix(taken);
    bytes -= taken;
  }
  // The rest may be an incomplete mark, but "<" alone is not enough to tell.
  const bool in_form = at_ == At::head || (at_ == At::opening && (seen_mark_ || surely_calls()));
  const bool is_mark = in_form && text.size() > 1;
  if (!text.empty() && !is_mark) take_text(text, true, output);
  end_message(false, output);
  return output;
}

}  // namespace motley::serving
