#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "serving/forms/output_parser.h"

namespace motley::serving {

// gpt-oss's form: messages of a head and a body,
//   [<|start|>assistant] [to=NAME] <|channel|>CHANNEL [to=NAME] [[<|constrain|>]json] <|message|>
//   BODY <|end|>
// analysis is reasoning, every other channel is content, and a message to a function is a call of
// it, in whichever channel. The prompt ends after "<|start|>assistant".
//
// Models break the form, and no text is lost where they do. Each byte comes out in content, in
// reasoning or in a call, but for marks, the form's own words and white space around them:
// - Text where a head should begin is content, and so is a message of another role.
// - A head that ends without <|message|> has its body after the form's words.
// - A head that says more than the form has words for says it as reasoning: content and arguments
//   are often JSON, which further text would break.
// - Arguments are the text as it was written, JSON or not; none are "{}".
class HarmonyParser final : public OutputParser {
 public:
  ParsedOutput push(std::string_view piece) override;
  ParsedOutput finish() override;
  OutputSection section() const override;

 private:
  enum class At : std::uint8_t {
    opening,  // after the prompt or a body: only a mark shows that this is a head
    head,
    body,
  };
  enum class Channel : std::uint8_t { none, analysis, other };
  enum class Part : std::uint8_t { reasoning, content, call };

  // The current head so far.
  struct Head {
    std::string words;      // in an opening: as written, in case they are content
    std::string recipient;  // after "to="
    std::string rest;       // from the first word on that is not part of the form
    Channel channel = Channel::none;
    bool in_rest = false;
    bool has_mark = false;  // of a channel or a format
    bool has_format = false;
    bool allows_role = true;
    bool allows_channel = true;
    bool allows_format = false;
  };

  bool advance(std::string_view& text, ParsedOutput& output);
  void take_mark(std::string_view mark, ParsedOutput& output);
  // Returns how many bytes of `text`, which has no mark, were consumed. `ended`: its last word is
  // complete.
  std::size_t take_text(std::string_view text, bool ended, ParsedOutput& output);
  void take_unknown(std::string_view word, ParsedOutput& output);
  // Whether it is a word of the form in this position.
  bool take_word(std::string_view word);
  bool take_recipient(std::string_view name);
  bool may_become_word(std::string_view begun) const;

  void end_message(bool by_start, ParsedOutput& output);
  void end_opening(ParsedOutput& output);
  void take_leftover(ParsedOutput& output);
  void begin_body(ParsedOutput& output);
  void take_body(std::string_view text, ParsedOutput& output);
  void take_arguments(std::string_view text, ParsedOutput& output);
  void begin_call(ParsedOutput& output) const;
  bool surely_calls() const;

  std::string held_;  // not consumed yet: an incomplete word or mark
  At at_ = At::opening;
  bool seen_mark_ = false;
  Head head_;
  Part part_ = Part::content;
  std::string arguments_;  // until they are more than white space
  bool call_begun_ = false;
};

}  // namespace motley::serving
