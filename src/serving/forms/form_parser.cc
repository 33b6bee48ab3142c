#include "serving/forms/form_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "serving/forms/tag_search.h"

namespace motley::serving {

namespace {

// Text before the first call is reasoning that never ended.
ParsedOutput with_reasoning_before_calls(ParsedOutput output) {
  if (output.order.empty() || output.order.front().kind != OutputKind::content) return output;
  const std::size_t size = output.order.front().size;
  output.order.front().kind = OutputKind::reasoning;
  output.reasoning = output.content.substr(0, size);
  output.content.erase(0, size);
  return output;
}

}  // namespace

FormParser::FormParser(Options options) : options_(std::move(options)) {
  MOTLEY_CHECK(!options_.begins_reasoning || options_.reasoning != nullptr,
               "a prompt begins reasoning in a form");
  state_ = State::content;
  if (options_.begins_reasoning)
    state_ = State::reasoning;
  else if (options_.reasoning != nullptr)
    state_ = options_.reasoned ? state_after_reasoning() : State::start;
  skip_spaces_ = may_repeat_ = options_.begins_reasoning;
}

ParsedOutput FormParser::push(std::string_view piece) {
  ParsedOutput output;
  held_ += piece;
  while (advance(false, output)) {
  }
  return output;
}

ParsedOutput FormParser::finish() {
  ParsedOutput output;
  while (advance(true, output)) {
  }
  return output;
}

// White space dropped since the last content.
void FormParser::note_gap(std::string_view spaces) {
  if (has_content_) gap_ += spaces;
}

bool FormParser::skip_spaces() {
  if (!skip_spaces_) return true;
  note_gap(std::string_view(held_).substr(0, leading_space(held_)));
  held_.erase(0, leading_space(held_));
  if (held_.empty()) return false;
  skip_spaces_ = false;
  return true;
}

bool FormParser::advance(bool last, ParsedOutput& output) {
  if (!skip_spaces()) return false;
  switch (state_) {
    case State::start:
      return in_start(last);
    case State::reasoning:
      return in_reasoning(last, output);
    case State::call_mark:
      return in_call_mark(last, output);
    case State::answer:
      return in_answer(last);
    case State::content:
      return in_content(last, output);
    case State::section:
      return in_section(last, output);
    case State::call:
      return in_call(last, output);
    case State::ended:
      held_.clear();
      return false;
  }
  MOTLEY_CHECK(false, "a state without a way on");
}

// --------------------------------------------------------------------------------------- reasoning

// Reasoning comes first or not at all.
bool FormParser::in_start(bool last) {
  const std::size_t spaces = leading_space(held_);
  const std::string_view begin = options_.reasoning->begin;
  const Begins begins = begins_with(std::string_view(held_).substr(spaces), begin, last);
  if (begins == Begins::perhaps) return false;
  state_ = State::content;
  if (begins == Begins::yes) {
    held_.erase(0, spaces + begin.size());
    state_ = State::reasoning;
    skip_spaces_ = true;
  }
  return true;
}

bool FormParser::in_reasoning(bool last, ParsedOutput& output) {
  const ReasoningForm& form = *options_.reasoning;
  if (may_repeat_) {
    const Begins begins = begins_with(held_, form.begin, last);
    if (begins == Begins::perhaps) return false;
    may_repeat_ = false;
    if (begins == Begins::yes) {
      held_.erase(0, form.begin.size());
      return skip_spaces_ = true;
    }
  }
  const std::size_t end = held_.find(form.end);
  const Trigger trigger = find_trigger(held_, true);
  if (trigger.kind != Trigger::Kind::none && trigger.at < end) {
    const std::size_t bytes = trailing_space(std::string_view(held_).substr(0, trigger.at));
    output.add_reasoning(std::string_view(held_).substr(0, bytes));
    held_.erase(0, bytes);
    searched_ = 0;
    state_ = State::call_mark;
    return true;
  }
  if (end != std::string::npos) {
    end_reasoning(end, output);
    return true;
  }
  std::size_t certain = held_.size();
  if (!last) certain -= std::max(begun_tag(held_, form.end), begun_trigger(held_));
  const std::size_t bytes = trailing_space(std::string_view(held_).substr(0, certain));
  output.add_reasoning(std::string_view(held_).substr(0, bytes));
  held_.erase(0, last ? held_.size() : bytes);
  return false;
}

void FormParser::end_reasoning(std::size_t end, ParsedOutput& output) {
  const std::string_view before = std::string_view(held_).substr(0, end);
  output.add_reasoning(before.substr(0, trailing_space(before)));
  held_.erase(0, end + options_.reasoning->end.size());
  state_ = state_after_reasoning();
  skip_spaces_ = true;
}

FormParser::State FormParser::state_after_reasoning() const {
  return options_.reasoning->answer_begin.empty() ? State::content : State::answer;
}

// Only the end of the text shows whether the reasoning ends.
bool FormParser::in_call_mark(bool last, ParsedOutput& output) {
  const std::string_view mark = options_.reasoning->end;
  const std::size_t end = held_.find(mark, searched_);
  if (end != std::string::npos) {
    end_reasoning(end, output);
    return true;
  }
  if (!last) {
    searched_ = held_.size() - begun_tag(held_, mark);
    return false;
  }
  FormParser calls(
      {.calls = options_.calls, .tools = options_.tools, .one_call = options_.one_call});
  ParsedOutput found = calls.push(held_);
  found.append(calls.finish());
  if (found.calls.empty())
    output.add_reasoning(std::string_view(held_).substr(0, trailing_space(held_)));
  else
    output.append(with_reasoning_before_calls(std::move(found)));
  held_.clear();
  return false;
}

bool FormParser::in_answer(bool last) {
  const std::string_view mark = options_.reasoning->answer_begin;
  const Begins begins = begins_with(held_, mark, last);
  if (begins == Begins::perhaps) return false;
  state_ = State::content;
  if (begins == Begins::yes) {
    held_.erase(0, mark.size());
    answer_open_ = skip_spaces_ = true;
  }
  return true;
}

// ----------------------------------------------------------------------------------------- content

FormParser::Trigger FormParser::find_trigger(std::string_view text, bool in_reasoning) const {
  Trigger trigger{.at = std::string_view::npos};
  const auto consider = [&](std::string_view mark, Trigger::Kind kind) {
    if (mark.empty()) return;
    const std::size_t at = text.find(mark);
    if (at < trigger.at) trigger = {.kind = kind, .at = at, .bytes = mark.size()};
  };
  if (answer_open_ && !in_reasoning)
    consider(options_.reasoning->answer_end, Trigger::Kind::answer_end);
  const ToolForm* const form = options_.calls;
  if (form == nullptr) return trigger;
  consider(form->begin, Trigger::Kind::mark);
  consider(form->other_begin, Trigger::Kind::mark);
  consider(form->call_begin, Trigger::Kind::mark);
  if (form->bare) consider(form->pairs->before_name, Trigger::Kind::call);
  if (form->starts_lines && !in_reasoning) find_line_start(text, trigger);
  return trigger;
}

void FormParser::find_line_start(std::string_view text, Trigger& trigger) const {
  bool at_start = at_line_start_;
  for (std::size_t at = 0; at < std::min(text.size(), trigger.at); ++at) {
    const char byte = text[at];
    if ((at_start || !options_.tools.empty()) && (byte == '[' || byte == '{')) {
      trigger = {.kind = Trigger::Kind::call, .at = at, .bytes = 1};
      return;
    }
    at_start = byte == '\n' || (at_start && white_space.find(byte) != std::string_view::npos);
  }
}

std::size_t FormParser::begun_trigger(std::string_view text) const {
  std::size_t bytes = 0;
  const auto consider = [&](std::string_view mark) {
    if (!mark.empty()) bytes = std::max(bytes, begun_tag(text, mark));
  };
  if (answer_open_) consider(options_.reasoning->answer_end);
  if (options_.calls == nullptr) return bytes;
  consider(options_.calls->begin);
  consider(options_.calls->other_begin);
  consider(options_.calls->call_begin);
  if (options_.calls->bare) consider(options_.calls->pairs->before_name);
  return bytes;
}

void FormParser::add_content(std::string_view text, ParsedOutput& output) {
  if (text.empty()) return;
  // Content before and after a call stays separated.
  if (has_content_ && !gap_.empty()) output.add_content(gap_);
  gap_.clear();
  has_content_ = true;
  output.add_content(text);
  for (const char byte : text) {
    at_line_start_ =
        byte == '\n' || (at_line_start_ && white_space.find(byte) != std::string_view::npos);
  }
}

bool FormParser::in_content(bool last, ParsedOutput& output) {
  if (options_.calls == nullptr && !answer_open_) {
    add_content(std::exchange(held_, {}), output);
    return false;
  }
  const Trigger trigger = find_trigger(held_, false);
  const bool found = trigger.kind != Trigger::Kind::none;
  std::size_t certain = found ? trigger.at : held_.size();
  if (!found && !last) certain -= begun_trigger(held_);
  std::size_t bytes = certain;
  if (found || !last) bytes = trailing_space(std::string_view(held_).substr(0, certain));
  add_content(std::string_view(held_).substr(0, bytes), output);
  if (!found) {
    held_.erase(0, bytes);
    return false;
  }
  pending_ = held_.substr(bytes, trigger.at - bytes);
  held_.erase(0, trigger.at);
  switch (trigger.kind) {
    case Trigger::Kind::answer_end:
      held_.erase(0, trigger.bytes);
      answer_open_ = false;
      note_gap(pending_);
      pending_.clear();
      return skip_spaces_ = true;
    case Trigger::Kind::mark:
      pending_ += std::string_view(held_).substr(0, trigger.bytes);
      held_.erase(0, trigger.bytes);
      marked_ = true;
      bare_ = 0;
      break;
    default:
      marked_ = false;
      bare_ = trigger.bytes;
  }
  made_ = false;
  state_ = State::section;
  return true;
}

// ------------------------------------------------------------------------------------------- calls

FormParser::Between FormParser::take_between(bool last, ParsedOutput& output) {
  const ToolForm& form = *options_.calls;
  bool undecided = false;
  const auto at_front = [&](std::string_view mark) {
    const Begins begins = begins_with(held_, mark, last);
    undecided = undecided || begins == Begins::perhaps;
    return begins == Begins::yes;
  };
  for (const std::string_view mark : {form.begin, form.other_begin, form.call_begin}) {
    if (!at_front(mark)) continue;
    pending_ += mark;
    held_.erase(0, mark.size());
    marked_ = true;
    bare_ = 0;
    return Between::taken;
  }
  for (const std::string_view mark : {form.end, form.other_end, form.call_end}) {
    if (!at_front(mark)) continue;
    held_.erase(0, mark.size());
    if (!made_) {
      pending_ += mark;
      bare_ = 0;
      leave_section(output);
      return Between::taken;
    }
    pending_.clear();
    marked_ = false;
    if (mark != form.call_end) {
      state_ = State::content;
      skip_spaces_ = true;
    }
    return Between::taken;
  }
  if (undecided) return Between::undecided;
  const char byte = held_.front();
  // Ends of lists of calls, and surplus braces of a call.
  const bool closes = made_ && (byte == ']' || byte == '}');
  if (!closes && byte != '[' && byte != ']' && byte != ',' && byte != ';') return Between::nothing;
  if (!closes) pending_ += byte;
  held_.erase(0, 1);
  bare_ = 0;
  return Between::taken;
}

bool FormParser::in_section(bool last, ParsedOutput& output) {
  const std::size_t spaces = leading_space(held_);
  if (!made_ || !pending_.empty())
    pending_ += std::string_view(held_).substr(0, spaces);
  else
    note_gap(std::string_view(held_).substr(0, spaces));
  held_.erase(0, spaces);
  if (held_.empty()) {
    if (!last) return false;
    if (made_ && !marked_) pending_.clear();
    leave_section(output);
    return false;
  }
  switch (take_between(last, output)) {
    case Between::taken:
      return true;
    case Between::undecided:
      return false;
    case Between::nothing:
      break;
  }
  const CallContext context{.form = *options_.calls, .tools = options_.tools, .marked = marked_};
  CallStart start = start_call(context, held_, last);
  if (start.undecided) return false;
  if (start.reader == nullptr) {
    leave_section(output);
    return true;
  }
  reader_ = std::move(start.reader);
  state_ = State::call;
  return true;
}

// The section contained no call: it is content, at least as far as it cannot be a call.
void FormParser::leave_section(ParsedOutput& output) {
  std::string text = std::exchange(pending_, {});
  const std::size_t bytes = std::min(std::exchange(bare_, 0), held_.size());
  text += std::string_view(held_).substr(0, bytes);
  held_.erase(0, bytes);
  if (made_) at_line_start_ = false;
  add_content(text, output);
  marked_ = false;
  state_ = State::content;
}

bool FormParser::in_call(bool last, ParsedOutput& output) {
  const CallReader::Progress progress = reader_->read(held_, last, output);
  if (progress == CallReader::Progress::more) return false;
  const std::unique_ptr<CallReader> reader = std::move(reader_);
  if (progress == CallReader::Progress::none) {
    leave_section(output);
    return true;
  }
  if (!made_) note_gap(std::string_view(pending_).substr(0, leading_space(pending_)));
  pending_.clear();
  marked_ = false;
  bare_ = 0;
  made_ = true;
  state_ = options_.one_call ? State::ended : State::section;
  const std::string& stray = reader->stray();
  add_content(std::string_view(stray).substr(0, trailing_space(stray)), output);
  return true;
}

OutputSection FormParser::section() const {
  switch (state_) {
    case State::start:
    case State::answer:
      return OutputSection::form;
    case State::reasoning:
    case State::call_mark:
      return OutputSection::reasoning;
    case State::content:
      return skip_spaces_ ? OutputSection::form : OutputSection::content;
    case State::section:
    case State::call:
    case State::ended:
      break;
  }
  return OutputSection::call;
}

}  // namespace motley::serving
