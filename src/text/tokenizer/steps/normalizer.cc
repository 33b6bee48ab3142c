#include "text/tokenizer/steps/normalizer.h"

#include <algorithm>
#include <optional>
#include <span>

#include "base/utf8.h"
#include "text/tokenizer/character_at.h"
#include "text/tokenizer/steps/byte_alphabet.h"
#include "text/tokenizer/steps/white_space.h"
#include "text/unicode/unicode.h"

namespace motley::text {
namespace {

constexpr std::string_view known_normalizers =
    "NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, Lowercase, StripAccents, ByteLevel and "
    "Sequence";

bool any_untrusted(const Draft& draft, Span span) {
  if (draft.untrusted.empty()) return false;
  const auto bytes = std::span(draft.untrusted).subspan(span.begin, span.end - span.begin);
  return std::ranges::find(bytes, 1) != bytes.end();
}

// Builds a new draft from left to right from the old one.
class Rewrite {
 public:
  explicit Rewrite(Draft& draft) : draft_(draft) { text_.reserve(draft.text.size()); }

  std::string_view old() const { return draft_.text; }

  void keep(Span span) {
    text_.append(draft_.text, span.begin, span.end - span.begin);
    if (draft_.untrusted.empty()) return;
    const auto first = draft_.untrusted.begin();
    untrusted_.insert(untrusted_.end(), first + static_cast<std::ptrdiff_t>(span.begin),
                      first + static_cast<std::ptrdiff_t>(span.end));
  }

  // Writes bytes in place of old ones; inserted bytes are untrusted if a neighbour is.
  void replace(Span span, std::string_view bytes) {
    text_ += bytes;
    if (draft_.untrusted.empty()) return;
    if (span.begin == span.end) {
      span.begin -= span.begin > 0 ? 1 : 0;
      span.end += span.end < draft_.untrusted.size() ? 1 : 0;
    }
    untrusted_.insert(untrusted_.end(), bytes.size(), any_untrusted(draft_, span));
  }

  void finish() {
    draft_.text = std::move(text_);
    draft_.untrusted = std::move(untrusted_);
  }

 private:
  Draft& draft_;
  std::string text_;
  std::vector<std::uint8_t> untrusted_;
};

// Calls `on_character` with the span and code point of every character.
template <class OnCharacter>
void each_character(std::string_view text, OnCharacter on_character) {
  for (std::size_t at = 0; at < text.size();) {
    const utf8::Decoded character = character_at(text, at);
    on_character(Span{.begin = at, .end = at + character.length}, character.code_point);
    at += character.length;
  }
}

// Whether normal forms treat a character independently of preceding ones: it is no mark, and
// neither it nor its compatible form composes with a preceding character. Exceptions that are not
// marks: Hangul vowels and finals, in three widths, and voicing marks of half-width kana.
bool starts_anew(char32_t c) {
  const auto between = [c](char32_t first, char32_t last) { return first <= c && c <= last; };
  if (c < 0x300) return true;
  if (between(0x1100, 0x11FF) || between(0x3130, 0x318F) || between(0xD7B0, 0xD7FF) ||
      between(0xFF9E, 0xFFDC))
    return false;
  return !unicode::is_combining_mark(c);
}

// The output of one component, so short that a single component stays within check_growth().
Result<std::string> short_string(const Component& component, std::string_view field) {
  MOTLEY_TRY(std::string text, component.string(field));
  if (text.size() > 64) return component.refused_value(field, text, "write at most 64 bytes");
  return text;
}

std::string write(char32_t c) {
  std::string text;
  utf8::append(text, c);
  return text;
}

}  // namespace

Result<Normalizer> Normalizer::parse(const json::Value* section, std::string_view where) {
  MOTLEY_TRY(const std::vector<Component> components,
             read_components(section, "normalizers", where));
  Normalizer normalizer;
  for (const Component& component : components) {
    MOTLEY_TRY(Step step, parse_step(component));
    normalizer.steps_.push_back(std::move(step));
  }
  return normalizer;
}

Result<Normalizer::Step> Normalizer::parse_step(const Component& component) {
  const std::string& type = component.type();
  if (type == "Prepend") {
    MOTLEY_TRY_VOID(component.has_only({"prepend"}));
    MOTLEY_TRY(std::string prefix, short_string(component, "prepend"));
    return Step(Prepend{std::move(prefix)});
  }
  if (type == "Replace") {
    MOTLEY_TRY_VOID(component.has_only({"pattern", "content"}));
    MOTLEY_TRY(Pattern pattern, Pattern::parse(component, "pattern"));
    MOTLEY_TRY(std::string content, short_string(component, "content"));
    return Step(Replace{std::move(pattern), std::move(content)});
  }
  if (type == "Strip") {
    MOTLEY_TRY_VOID(component.has_only({"strip_left", "strip_right"}));
    MOTLEY_TRY(const bool left, component.boolean("strip_left"));
    MOTLEY_TRY(const bool right, component.boolean("strip_right"));
    return Step(Strip{.left = left, .right = right});
  }
  MOTLEY_TRY_VOID(component.has_only({}));
  if (type == "NFC") return Step(Form::nfc);
  if (type == "NFD") return Step(Form::nfd);
  if (type == "NFKC") return Step(Form::nfkc);
  if (type == "NFKD") return Step(Form::nfkd);
  if (type == "Lowercase") return Step(Lowercase{});
  if (type == "StripAccents") return Step(StripAccents{});
  if (type == "ByteLevel") return Step(ByteLevel{});
  return component.refused_type(known_normalizers);
}

Result<void> Normalizer::apply(Draft& draft) const {
  const std::size_t bytes = draft.text.size();
  for (const Step& step : steps_) {
    MOTLEY_TRY_VOID(std::visit([&](const auto& known) { return run(known, draft); }, step));
    MOTLEY_TRY_VOID(check_growth(bytes, draft.text.size()));
  }
  return {};
}

Result<void> Normalizer::run(Form form, Draft& draft) {
  const auto write_form = [form](std::string_view text) {
    switch (form) {
      case Form::nfc:
        return unicode::nfc(text);
      case Form::nfd:
        return unicode::nfd(text);
      case Form::nfkc:
        return unicode::nfkc(text);
      case Form::nfkd:
        break;
    }
    return unicode::nfkd(text);
  };
  std::string whole = write_form(draft.text);
  if (whole == draft.text) return {};
  if (draft.untrusted.empty()) {
    draft.text = std::move(whole);
    return {};
  }
  const bool untrusted = any_untrusted(draft, {.begin = 0, .end = draft.text.size()});
  Rewrite rewrite(draft);
  Span group;
  const auto finish_group = [&] {
    const std::string_view old = rewrite.old().substr(group.begin, group.end - group.begin);
    const std::string written = write_form(old);
    if (written == old)
      rewrite.keep(group);
    else
      rewrite.replace(group, written);
  };
  each_character(draft.text, [&](Span span, char32_t c) {
    if (starts_anew(c)) {
      finish_group();
      group = span;
    }
    group.end = span.end;
  });
  finish_group();
  rewrite.finish();
  // If a character does depend on a preceding one, the text is right nevertheless, and all of it
  // counts as untrusted.
  if (draft.text != whole) {
    draft.untrusted.assign(whole.size(), untrusted);
    draft.text = std::move(whole);
  }
  return {};
}

Result<void> Normalizer::run(const Prepend& step, Draft& draft) {
  if (draft.text.empty()) return {};
  draft.text.insert(0, step.prefix);
  if (!draft.untrusted.empty())
    draft.untrusted.insert(draft.untrusted.begin(), step.prefix.size(), draft.untrusted.front());
  return {};
}

Result<void> Normalizer::run(const Replace& step, Draft& draft) {
  if (draft.text.empty()) return {};
  Rewrite rewrite(draft);
  bool opens = draft.opens;
  std::size_t kept = 0;
  MOTLEY_TRY_VOID(step.pattern.each_match(draft.text, [&](Span match) -> Result<void> {
    rewrite.keep({.begin = kept, .end = match.begin});
    rewrite.replace(match, step.content);
    // The replacement of several characters belongs to the last of them.
    if (match.begin == 0 && match.end > 0)
      opens = opens && !step.content.empty() && utf8::decode(draft.text).length == match.end;
    kept = match.end;
    return {};
  }));
  rewrite.keep({.begin = kept, .end = draft.text.size()});
  rewrite.finish();
  draft.opens = opens;
  return {};
}

Result<void> Normalizer::run(const Strip& step, Draft& draft) {
  const std::size_t left = step.left ? leading_white_space(draft.text) : 0;
  std::size_t end = draft.text.size();
  if (step.right) end = std::max(left, end - trailing_white_space(draft.text));
  Rewrite rewrite(draft);
  rewrite.keep({.begin = left, .end = end});
  rewrite.finish();
  draft.opens = draft.opens && left == 0;
  return {};
}

Result<void> Normalizer::run(Lowercase, Draft& draft) {
  if (draft.untrusted.empty()) {
    draft.text = unicode::lowercase(draft.text);
    return {};
  }
  Rewrite rewrite(draft);
  each_character(draft.text, [&](Span span, char32_t c) {
    rewrite.replace(span, unicode::lowercase(write(c)));
  });
  rewrite.finish();
  return {};
}

Result<void> Normalizer::run(StripAccents, Draft& draft) {
  Rewrite rewrite(draft);
  bool opens = draft.opens;
  each_character(draft.text, [&](Span span, char32_t c) {
    if (unicode::is_combining_mark(c))
      opens = opens && span.begin > 0;
    else
      rewrite.keep(span);
  });
  rewrite.finish();
  draft.opens = opens;
  return {};
}

Result<void> Normalizer::run(ByteLevel, Draft& draft) {
  Rewrite rewrite(draft);
  each_character(draft.text, [&](Span span, char32_t) {
    std::string written;
    append_as_characters(written, rewrite.old().substr(span.begin, span.end - span.begin));
    rewrite.replace(span, written);
  });
  rewrite.finish();
  return {};
}

}  // namespace motley::text
