#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "text/tokenizer/draft.h"
#include "text/tokenizer/steps/pattern.h"

namespace motley::text {

// The section "normalizer" of a tokenizer.json: rewrites text before it is split. Marks of
// untrusted bytes are preserved; where several bytes become one character, one untrusted byte makes
// it untrusted.
class Normalizer {
 public:
  static Result<Normalizer> parse(const json::Value* section, std::string_view where);

  // Whether it never changes anything.
  bool empty() const { return steps_.empty(); }

  Result<void> apply(Draft& draft) const;

 private:
  enum class Form : std::uint8_t { nfc, nfd, nfkc, nfkd };
  struct Prepend {
    std::string prefix;
  };
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Strip {
    bool left;
    bool right;
  };
  struct Lowercase {};
  struct StripAccents {};
  struct ByteLevel {};
  using Step = std::variant<Form, Prepend, Replace, Strip, Lowercase, StripAccents, ByteLevel>;

  static Result<Step> parse_step(const Component& component);

  static Result<void> run(Form form, Draft& draft);
  static Result<void> run(const Prepend& step, Draft& draft);
  static Result<void> run(const Replace& step, Draft& draft);
  static Result<void> run(const Strip& step, Draft& draft);
  static Result<void> run(Lowercase step, Draft& draft);
  static Result<void> run(StripAccents step, Draft& draft);
  static Result<void> run(ByteLevel step, Draft& draft);

  std::vector<Step> steps_;
};

}  // namespace motley::text
