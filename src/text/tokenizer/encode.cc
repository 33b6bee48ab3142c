#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "base/utf8.h"
#include "text/tokenizer/parts.h"

namespace motley::text {
namespace {

// A workspace grows with the text; those of longer texts are not kept.
constexpr std::size_t most_kept_text = std::size_t{1} << 20;

// The text with each broken sequence replaced by U+FFFD, which is said if any byte of it was.
MarkedText repaired(const MarkedText& marked) {
  MarkedText result;
  const std::string_view text = marked.text;
  for (std::size_t at = 0; at < text.size();) {
    const utf8::Decoded character = utf8::decode(text.substr(at));
    const std::size_t end = at + character.length;
    result.append(character.valid ? text.substr(at, character.length) : "\xEF\xBF\xBD",
                  marked.any_said(at, end));
    at = end;
  }
  return result;
}

bool any_set(std::span<const std::uint8_t> said) {
  return std::ranges::find(said, 1) != said.end();
}

// One text on its way through the parts of a tokenizer.
class Encoder {
 public:
  // `marks` may be null; else they belong to `text`.
  Encoder(const TokenizerParts& parts, std::string_view text, const MarkedText* marks,
          EncodeWorkspace& workspace)
      : parts_(parts), text_(text), marks_(marks), workspace_(workspace) {}

  Result<std::vector<std::int32_t>> run() {
    workspace_.raw.clear();
    const auto excludes = [&](const AddedToken& token, Span span) {
      return token.special && any_said(span);
    };
    parts_.added.split_raw(text_, excludes, workspace_.raw);
    for (const AddedTokens::Stretch& stretch : workspace_.raw) {
      if (stretch.id >= 0)
        ids_.push_back(stretch.id);
      else
        MOTLEY_TRY_VOID(encode_raw(stretch.span));
    }
    return std::move(ids_);
  }

 private:
  bool any_said(Span span) const {
    return marks_ != nullptr && marks_->any_said(span.begin, span.end);
  }

  Result<void> encode_raw(Span span) {
    const std::string_view text = text_.substr(span.begin, span.end - span.begin);
    Draft draft{.opens = span.begin == 0};
    if (any_said(span)) {
      draft.said.assign(text.size(), 0);
      for (const Span& said : marks_->part(span.begin, span.end).said)
        std::fill(draft.said.begin() + static_cast<std::ptrdiff_t>(said.begin),
                  draft.said.begin() + static_cast<std::ptrdiff_t>(said.end), 1);
    }
    if (parts_.normalizer.empty())
      return encode_normalized({.text = text, .said = draft.said, .opens = draft.opens});
    draft.text = text;
    MOTLEY_TRY_VOID(parts_.normalizer.apply(draft));
    return encode_normalized({.text = draft.text, .said = draft.said, .opens = draft.opens});
  }

  static Piece part_of(const Piece& whole, Span span) {
    const std::size_t size = span.end - span.begin;
    return {.text = whole.text.substr(span.begin, size),
            .said = whole.said.empty() ? whole.said : whole.said.subspan(span.begin, size),
            .opens = whole.opens && span.begin == 0};
  }

  Result<void> encode_normalized(const Piece& piece) {
    workspace_.normalized.clear();
    const auto excludes = [&](const AddedToken& token, Span span) {
      return token.special && any_set(part_of(piece, span).said);
    };
    parts_.added.split_normalized(piece.text, excludes, workspace_.normalized);
    for (const AddedTokens::Stretch& stretch : workspace_.normalized) {
      if (stretch.id >= 0)
        ids_.push_back(stretch.id);
      else
        MOTLEY_TRY_VOID(encode_piece(part_of(piece, stretch.span)));
    }
    return {};
  }

  Result<void> encode_piece(const Piece& piece) {
    Words& words = workspace_.words;
    MOTLEY_TRY_VOID(parts_.pre_tokenizer.split(piece, words));
    const bool guarded = parts_.model_has_special && !words.said().empty();
    for (const Span& span : words.spans()) {
      const std::size_t size = span.end - span.begin;
      const std::string_view word = words.text().substr(span.begin, size);
      if (guarded) {
        MOTLEY_TRY_VOID(parts_.model.encode_said(word, words.said().subspan(span.begin, size),
                                                 parts_.special, workspace_.model, ids_));
      } else {
        MOTLEY_TRY_VOID(parts_.model.encode(word, workspace_.model, ids_));
      }
    }
    return {};
  }

  const TokenizerParts& parts_;
  std::string_view text_;
  const MarkedText* marks_;
  EncodeWorkspace& workspace_;
  std::vector<std::int32_t> ids_;
};

Result<std::vector<std::int32_t>> run(const TokenizerParts& parts, std::string_view text,
                                      const MarkedText* marks, const EncodeOptions& options) {
  auto workspace = parts.workspaces.take();
  auto ids = Encoder(parts, text, marks, *workspace).run();
  if (text.size() <= most_kept_text) parts.workspaces.give_back(std::move(workspace));
  if (!ids.ok()) return ids;
  return parts.post_processor.apply(std::move(*ids), options.add_special_tokens);
}

}  // namespace

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text,
                                                    const EncodeOptions& options) const {
  if (utf8::valid(text)) return run(*parts_, text, nullptr, options);
  return run(*parts_, utf8::repaired(text), nullptr, options);
}

Result<std::vector<std::int32_t>> Tokenizer::encode(const MarkedText& text,
                                                    const EncodeOptions& options) const {
  if (text.said.empty() || options.special_in_said)
    return encode(std::string_view(text.text), options);
  if (utf8::valid(text.text)) return run(*parts_, text.text, &text, options);
  const MarkedText whole = repaired(text);
  return run(*parts_, whole.text, &whole, options);
}

}  // namespace motley::text
