#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "serving/forms/output_parser.h"
#include "serving/forms/tool_form.h"

namespace motley::serving {

// Gives calls ids that the model's template accepts in later requests.
class CallIdParser final : public OutputParser {
 public:
  // `calls_before`: the number of calls in the conversation.
  CallIdParser(std::unique_ptr<OutputParser> parser, CallIds ids, std::size_t calls_before)
      : parser_(std::move(parser)), ids_(ids), calls_(calls_before) {}

  ParsedOutput push(std::string_view piece) override { return with_ids(parser_->push(piece)); }
  ParsedOutput finish() override { return with_ids(parser_->finish()); }
  OutputSection section() const override { return parser_->section(); }

 private:
  ParsedOutput with_ids(ParsedOutput output);

  std::unique_ptr<OutputParser> parser_;
  CallIds ids_;
  std::size_t calls_;
};

}  // namespace motley::serving
