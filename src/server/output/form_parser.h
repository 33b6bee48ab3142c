#pragma once

#include <memory>
#include <string>

#include "server/output/output_parser.h"
#include "server/output/readers/call_reader.h"
#include "server/output/tool_form.h"
#include "server/output/tool_schemas.h"

namespace motley::server {

// Takes apart what models write in one of the forms with marks. Text that is part of no call stays
// in the answer, in order, and so do marks without a call behind them. White space around reasoning
// and calls belongs to the form.
class FormParser final : public OutputParser {
 public:
  struct Options {
    const ReasoningForm* reasoning = nullptr;  // null: there is none
    bool begins_reasoning = false;             // the prompt ends inside it
    bool reasoned = false;                     // the prompt ends behind it
    const ToolForm* calls = nullptr;           // null: there are none
    ToolSchemas tools = {};
    bool one_call = false;  // the answer ends with the first
  };

  explicit FormParser(Options options);

  ParsedOutput push(std::string_view piece) override;
  ParsedOutput finish() override;
  OutputSection section() const override;

 private:
  enum class State : std::uint8_t {
    start,      // reasoning may begin
    reasoning,  //
    call_mark,  // a mark of calls stands in reasoning: a call if the reasoning never ends
    answer,     // behind reasoning, where the mark of the answer may stand
    content,    //
    section,    // between the marks of calls
    call,       //
    ended,      //
  };

  // What interrupts content: a mark, or a call without one.
  struct Trigger {
    enum class Kind : std::uint8_t { none, mark, call, answer_end };
    Kind kind = Kind::none;
    std::size_t at = 0;
    std::size_t bytes = 0;  // of the mark, or of what shows that there is no call if there is none
  };

  // Uses up text from the front of held_; false where more must come first.
  bool advance(bool last, ParsedOutput& output);
  bool in_start(bool last);
  bool in_reasoning(bool last, ParsedOutput& output);
  bool in_call_mark(bool last, ParsedOutput& output);
  bool in_answer(bool last);
  bool in_content(bool last, ParsedOutput& output);
  bool in_section(bool last, ParsedOutput& output);
  bool in_call(bool last, ParsedOutput& output);

  Trigger find_trigger(std::string_view text, bool in_reasoning) const;
  void find_line_start(std::string_view text, Trigger& trigger) const;
  // How many bytes at the end of a text may be the beginning of something that find_trigger finds.
  std::size_t begun_trigger(std::string_view text) const;

  State state_behind_reasoning() const;
  void end_reasoning(std::size_t end, ParsedOutput& output);
  // A mark at the front of held_, or something else that stands between calls.
  enum class Between : std::uint8_t { nothing, taken, undecided };
  Between take_between(bool last, ParsedOutput& output);
  void leave_section(ParsedOutput& output);
  void add_content(std::string_view text, ParsedOutput& output);
  void note_gap(std::string_view spaces);
  // Drops white space at the front; false where that is all.
  bool skip_spaces();

  Options options_;
  State state_;
  std::string held_;
  bool skip_spaces_ = false;   // until something else comes
  bool may_repeat_ = false;    // the mark of reasoning that the prompt ends with
  bool answer_open_ = false;   // behind the answer's mark
  bool at_line_start_ = true;  // of content
  bool has_content_ = false;   // some content
  std::string gap_;            // white space between that and what comes
  std::size_t searched_ = 0;   // for the end of reasoning

  // Of the section.
  std::string pending_;  // what is content if no call follows
  bool marked_ = false;  // it has a mark
  bool made_ = false;    // a call
  std::size_t bare_ = 0;
  std::unique_ptr<CallReader> reader_;  // in a call
};

}  // namespace motley::server
