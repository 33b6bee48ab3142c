#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "serving/forms/output_parser.h"
#include "serving/forms/tool_call.h"

// Parsers for answers that a grammar forces to be calls in JSON.
namespace motley::serving {

// The whole text is the arguments of one call.
class NamedCallParser final : public OutputParser {
 public:
  explicit NamedCallParser(std::string name) : name_(std::move(name)) {}

  ParsedOutput push(std::string_view piece) override;
  ParsedOutput finish() override { return {}; }
  OutputSection section() const override { return OutputSection::call; }

 private:
  std::string name_;
  bool begun_ = false;
};

// [{"name": NAME, "parameters": {...}}, ...]
class CallListParser final : public OutputParser {
 public:
  ParsedOutput push(std::string_view piece) override;
  // An answer that ends before a call begins is dropped.
  ParsedOutput finish() override { return {}; }
  OutputSection section() const override { return OutputSection::call; }

 private:
  enum class At : std::uint8_t { head, arguments, after };

  std::string held_;
  At at_ = At::head;
  JsonExtent arguments_;
};

}  // namespace motley::serving
