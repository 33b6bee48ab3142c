#pragma once

#include "server/output/output_parser.h"

namespace motley::server {

// gpt-oss's form: messages of a head and a body,
//   [<|start|>assistant] [to=functions.NAME] <|channel|>CHANNEL [to=functions.NAME] ... <|message|>
//   BODY <|end|>
// analysis is reasoning, final and commentary are content, a commentary to a function is a call of
// it. The prompt ends behind "<|start|>assistant".
class HarmonyParser final : public OutputParser {
 public:
  ParsedOutput push(std::string_view piece) override;
  ParsedOutput finish() override;

 private:
  enum class Part : std::uint8_t { reasoning, content, call };

  bool advance(ParsedOutput& output);
  void read_head(std::string_view head);
  void take_body(std::string_view text, ParsedOutput& output);
  void take_arguments(std::string_view text, ParsedOutput& output);
  void end_body(ParsedOutput& output);

  std::string held_;
  bool in_head_ = true;
  Part part_ = Part::content;
  std::string function_;
  std::string arguments_;  // until they are known to be an object
  bool call_begun_ = false;
};

}  // namespace motley::server
