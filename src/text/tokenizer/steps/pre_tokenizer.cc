#include "text/tokenizer/steps/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "base/utf8.h"
#include "text/tokenizer/character_at.h"
#include "text/tokenizer/draft.h"
#include "text/tokenizer/steps/byte_alphabet.h"
#include "text/unicode/unicode.h"

namespace motley::text {
namespace {

constexpr std::string_view known_pre_tokenizers =
    "Split, ByteLevel, Digits, Metaspace, Punctuation, Whitespace, WhitespaceSplit and Sequence";

// The pattern of ByteLevel with use_regex: contractions, letters, numbers and the rest, each with
// the space before it, and runs of white space.
constexpr std::string_view byte_level_expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace

Result<PreTokenizer> PreTokenizer::parse(const json::Value* section, std::string_view where) {
  MOTLEY_TRY(const std::vector<Component> components,
             read_components(section, "pretokenizers", where));
  PreTokenizer pre_tokenizer;
  for (const Component& component : components)
    MOTLEY_TRY_VOID(pre_tokenizer.append_steps(component));
  std::vector<Step>& steps = pre_tokenizer.steps_;
  const auto maps_bytes = [](const Step& step) { return std::holds_alternative<MapBytes>(step); };
  if (std::ranges::count_if(steps, maps_bytes) == 1 && maps_bytes(steps.back())) {
    steps.pop_back();
    pre_tokenizer.leaves_bytes_ = true;
  }
  return pre_tokenizer;
}

Result<void> PreTokenizer::append_steps(const Component& component) {
  const std::string& type = component.type();
  if (type == "ByteLevel") return append_byte_level(component);
  if (type == "Metaspace") return append_metaspace(component);
  if (type == "Split") {
    MOTLEY_TRY_VOID(component.has_only({"pattern", "behavior", "invert"}));
    MOTLEY_TRY(Pattern pattern, Pattern::parse(component, "pattern"));
    MOTLEY_TRY(const SplitBehavior behavior, parse_split_behavior(component));
    MOTLEY_TRY(const bool invert, component.boolean("invert"));
    steps_.emplace_back(SplitByPattern{std::move(pattern), behavior, invert});
  } else if (type == "Digits") {
    MOTLEY_TRY_VOID(component.has_only({"individual_digits"}));
    MOTLEY_TRY(const bool individual, component.boolean("individual_digits"));
    steps_.emplace_back(SplitByClass{
        Class::digit, individual ? SplitBehavior::isolated : SplitBehavior::contiguous});
  } else if (type == "Punctuation") {
    MOTLEY_TRY_VOID(component.has_only({"behavior"}));
    SplitBehavior behavior = SplitBehavior::isolated;
    if (component.find("behavior") != nullptr) {
      MOTLEY_TRY(behavior, parse_split_behavior(component));
    }
    steps_.emplace_back(SplitByClass{Class::punctuation, behavior});
  } else if (type == "WhitespaceSplit") {
    MOTLEY_TRY_VOID(component.has_only({}));
    steps_.emplace_back(SplitByClass{Class::white_space, SplitBehavior::removed});
  } else if (type == "Whitespace") {
    MOTLEY_TRY_VOID(component.has_only({}));
    steps_.emplace_back(SplitByWords{});
  } else {
    return component.refused_type(known_pre_tokenizers);
  }
  return {};
}

Result<void> PreTokenizer::append_byte_level(const Component& component) {
  MOTLEY_TRY_VOID(component.has_only({"add_prefix_space", "trim_offsets", "use_regex"}));
  MOTLEY_TRY(const bool add_prefix_space, component.boolean("add_prefix_space"));
  MOTLEY_TRY(const bool use_regex, component.boolean("use_regex", true));
  if (add_prefix_space) steps_.emplace_back(PrependSpace{});
  if (use_regex) {
    MOTLEY_TRY(Pattern pattern, Pattern::regex(byte_level_expression, component.where()));
    steps_.emplace_back(SplitByPattern{std::move(pattern), SplitBehavior::isolated, false});
  }
  steps_.emplace_back(MapBytes{});
  return {};
}

Result<void> PreTokenizer::append_metaspace(const Component& component) {
  MOTLEY_TRY(const MetaspaceFields fields, MetaspaceFields::parse(component));
  std::string replacement;
  utf8::append(replacement, fields.replacement);
  steps_.emplace_back(Metaspace{replacement, fields.scheme});
  if (fields.split) {
    steps_.emplace_back(
        SplitByPattern{Pattern::of(replacement), SplitBehavior::merged_with_next, false});
  }
  return {};
}

bool PreTokenizer::keeps_all() const {
  return std::ranges::none_of(steps_, [](const Step& step) {
    const auto* const by_pattern = std::get_if<SplitByPattern>(&step);
    const auto* const by_class = std::get_if<SplitByClass>(&step);
    return std::holds_alternative<SplitByWords>(step) ||
           (by_pattern != nullptr && by_pattern->behavior == SplitBehavior::removed) ||
           (by_class != nullptr && by_class->behavior == SplitBehavior::removed);
  });
}

Result<void> PreTokenizer::split(const Piece& piece, Words& words) const {
  words.piece_ = piece;
  words.rewritten_ = false;
  words.spans_.clear();
  if (piece.text.empty()) return {};
  words.spans_.push_back({.begin = 0, .end = piece.text.size()});
  for (const Step& step : steps_) {
    MOTLEY_TRY_VOID(std::visit([&](const auto& known) { return run(known, words); }, step));
    MOTLEY_TRY_VOID(check_growth(piece.text.size(), words.text().size()));
  }
  return {};
}

Result<void> PreTokenizer::run(const SplitByPattern& step, Words& words) {
  std::swap(words.spans_, words.old_spans_);
  words.spans_.clear();
  std::vector<Stretch>& stretches = words.stretches_;
  for (const Span& span : words.old_spans_) {
    const std::string_view text = words.text().substr(span.begin, span.end - span.begin);
    stretches.clear();
    std::size_t end = 0;
    const auto add = [&](std::size_t begin, std::size_t stop, bool matched) {
      stretches.push_back({.span = {.begin = span.begin + begin, .end = span.begin + stop},
                           .matched = matched != step.invert});
      end = stop;
    };
    const bool isolates = step.behavior == SplitBehavior::isolated;
    const auto on_match = [&](Span match) -> Result<void> {
      if (end != match.begin) add(end, match.begin, false);
      add(match.begin, match.end, true);
      MOTLEY_TRY_VOID(words.look());
      // Some of the stretches may be empty: at most one of two adjacent ones.
      return isolates ? words.check_words((words.spans_.size() + stretches.size()) / 2)
                      : Result<void>();
    };
    MOTLEY_TRY_VOID(step.pattern.each_match(text, on_match));
    if (end != text.size()) add(end, text.size(), false);
    append_pieces(words.spans_, stretches, step.behavior);
  }
  return {};
}

// Splits at characters that match; each match is a stretch of its own.
template <class Classify>
Result<void> PreTokenizer::split_by(Words& words, SplitBehavior behavior, Classify matches) {
  std::swap(words.spans_, words.old_spans_);
  words.spans_.clear();
  std::vector<Stretch>& stretches = words.stretches_;
  for (const Span& span : words.old_spans_) {
    stretches.clear();
    for (std::size_t at = span.begin; at < span.end;) {
      MOTLEY_TRY_VOID(words.look());
      const utf8::Decoded character = character_at(words.text(), at);
      const std::size_t end = at + character.length;
      const bool matched = matches(character.code_point);
      if (!matched && !stretches.empty() && !stretches.back().matched)
        stretches.back().span.end = end;
      else
        stretches.push_back({.span = {.begin = at, .end = end}, .matched = matched});
      at = end;
    }
    append_pieces(words.spans_, stretches, behavior);
  }
  return {};
}

Result<void> PreTokenizer::run(const SplitByClass& step, Words& words) {
  switch (step.matching) {
    case Class::digit:
      return split_by(words, step.behavior, unicode::is_numeric);
    case Class::punctuation:
      return split_by(words, step.behavior, unicode::is_punctuation);
    case Class::white_space:
      break;
  }
  return split_by(words, step.behavior, unicode::is_white_space);
}

// Runs of word characters, and runs of other characters except white space.
Result<void> PreTokenizer::run(SplitByWords, Words& words) {
  enum class Kind : std::uint8_t { none, word, other };
  std::swap(words.spans_, words.old_spans_);
  words.spans_.clear();
  for (const Span& span : words.old_spans_) {
    Kind last = Kind::none;
    for (std::size_t at = span.begin; at < span.end;) {
      const utf8::Decoded character = character_at(words.text(), at);
      const std::size_t end = at + character.length;
      Kind kind = Kind::other;
      if (unicode::is_word(character.code_point))
        kind = Kind::word;
      else if (unicode::is_white_space(character.code_point))
        kind = Kind::none;
      if (kind != Kind::none && kind == last)
        words.spans_.back().end = end;
      else if (kind != Kind::none)
        words.spans_.push_back({.begin = at, .end = end});
      last = kind;
      at = end;
    }
  }
  return {};
}

// Rewrites every word: `write(word, opens)` appends to the new text, and to the new marks if there
// are any.
template <class Write>
void PreTokenizer::rewrite(Words& words, Write write) {
  if (words.rewritten_) {
    std::swap(words.text_, words.old_text_);
    std::swap(words.untrusted_, words.old_untrusted_);
    words.piece_.text = words.old_text_;
    words.piece_.untrusted = words.old_untrusted_;
  }
  words.rewritten_ = true;
  words.text_.clear();
  words.untrusted_.clear();
  const bool opens = words.piece_.opens && !words.spans_.empty() && words.spans_[0].begin == 0;
  for (Span& span : words.spans_) {
    const std::size_t begin = words.text_.size();
    write(span, opens && span.begin == 0);
    span = {.begin = begin, .end = words.text_.size()};
  }
  words.piece_ = {.text = words.text_, .untrusted = words.untrusted_, .opens = opens};
}

Result<void> PreTokenizer::run(PrependSpace, Words& words) {
  rewrite(words, [&](Span word, bool) {
    const bool has_space = words.piece_.text[word.begin] == ' ';
    if (!has_space) words.text_ += ' ';
    words.text_ += words.piece_.text.substr(word.begin, word.end - word.begin);
    if (words.piece_.untrusted.empty()) return;
    const auto untrusted = words.piece_.untrusted.subspan(word.begin, word.end - word.begin);
    if (!has_space) words.untrusted_.push_back(untrusted[0]);
    words.untrusted_.insert(words.untrusted_.end(), untrusted.begin(), untrusted.end());
  });
  return {};
}

Result<void> PreTokenizer::run(MapBytes, Words& words) {
  rewrite(words, [&](Span word, bool) {
    for (std::size_t at = word.begin; at < word.end; ++at) {
      append_as_characters(words.text_, words.piece_.text.substr(at, 1));
      if (!words.piece_.untrusted.empty())
        words.untrusted_.resize(words.text_.size(), words.piece_.untrusted[at]);
    }
  });
  return {};
}

Result<void> PreTokenizer::run(const Metaspace& step, Words& words) {
  rewrite(words, [&](Span word, bool opens) {
    const Piece& piece = words.piece_;
    const std::string_view text = piece.text.substr(word.begin, word.end - word.begin);
    const bool has_prefix = text[0] == ' ' || text.starts_with(step.replacement);
    const bool wants_prefix =
        step.scheme == PrependScheme::always || (step.scheme == PrependScheme::first && opens);
    if (wants_prefix && !has_prefix) {
      words.text_ += step.replacement;
      if (!piece.untrusted.empty())
        words.untrusted_.resize(words.text_.size(), piece.untrusted[word.begin]);
    }
    for (std::size_t at = word.begin; at < word.end; ++at) {
      if (piece.text[at] == ' ')
        words.text_ += step.replacement;
      else
        words.text_ += piece.text[at];
      if (!piece.untrusted.empty())
        words.untrusted_.resize(words.text_.size(), piece.untrusted[at]);
    }
  });
  return {};
}

}  // namespace motley::text
