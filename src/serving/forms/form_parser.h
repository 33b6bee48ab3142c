#pragma once

#include <memory>
#include <string>

#include "serving/forms/output_parser.h"
#include "serving/forms/readers/call_reader.h"
#include "serving/forms/tool_form.h"
#include "serving/forms/tool_schemas.h"

namespace motley::serving {

// Parses the output of models that use one of the forms with marks. Text that is not part of a call
// stays in the answer, in order, and so do marks without a call. White space around reasoning and
// calls belongs to the form.
class FormParser final : public OutputParser {
 public:
  struct Options {
    const ReasoningForm* reasoning = nullptr;  // null: none
    bool begins_reasoning = false;             // the prompt ends inside reasoning
    bool reasoned = false;                     // the prompt ends after reasoning
    const ToolForm* calls = nullptr;           // null: none
    ToolSchemas tools = {};
    bool one_call = false;  // the answer ends after the first call
  };

  explicit FormParser(Options options);

  ParsedOutput push(std::string_view piece) override;
  ParsedOutput finish() override;
  OutputSection section() const override;

 private:
  enum class State : std::uint8_t {
    start,      // reasoning may begin
    reasoning,  //
    call_mark,  // a call mark inside reasoning: it begins a call if the reasoning never ends
    answer,     // after reasoning, where the answer's mark may follow
    content,    //
    section,    // between the marks of calls
    call,       //
    ended,      //
  };

  // What interrupts content: a mark, or a call without a mark.
  struct Trigger {
    enum class Kind : std::uint8_t { none, mark, call, answer_end };
    Kind kind = Kind::none;
    std::size_t at = 0;
    std::size_t bytes = 0;  // of the mark, or of what shows that there is no call
  };

  // Consumes text from the front of held_; false if more text is needed.
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
  // The length of a suffix of the text that may begin something that find_trigger finds.
  std::size_t begun_trigger(std::string_view text) const;

  State state_after_reasoning() const;
  void end_reasoning(std::size_t end, ParsedOutput& output);
  // Whether held_ begins with a mark or other text between calls.
  enum class Between : std::uint8_t { nothing, taken, undecided };
  Between take_between(bool last, ParsedOutput& output);
  void leave_section(ParsedOutput& output);
  void add_content(std::string_view text, ParsedOutput& output);
  void note_gap(std::string_view spaces);
  // Drops leading white space; false if nothing else is there.
  bool skip_spaces();

  Options options_;
  State state_;
  std::string held_;
  bool skip_spaces_ = false;   // until other text arrives
  bool may_repeat_ = false;    // the model may repeat the reasoning mark at the end of the prompt
  bool answer_open_ = false;   // after the answer's mark
  bool at_line_start_ = true;  // of content
  bool has_content_ = false;   // some content
  std::string gap_;            // white space between the last content and the next
  std::size_t searched_ = 0;   // for the end of reasoning

  // Of the section.
  std::string pending_;  // content if no call follows
  bool marked_ = false;  // it has a mark
  bool made_ = false;    // a call
  std::size_t bare_ = 0;
  std::unique_ptr<CallReader> reader_;  // in a call
};

}  // namespace motley::serving
