#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "base/cat.h"
#include "base/utf8.h"
#include "text/tokenizer/parts.h"

namespace motley::text {

Error EncodeWatch::too_many() const {
  return {ErrorCode::too_long, cat("more than ", bounds_.max_tokens, " tokens"), "",
          "send a shorter text"};
}

namespace {

// A workspace grows to 40 times the bytes of the text; workspaces of longer texts are not kept.
constexpr std::size_t max_kept_text = std::size_t{128} << 10;

// Replaces each invalid sequence by U+FFFD, which is untrusted if any of its bytes was.
MarkedText repaired(const MarkedText& marked) {
  MarkedText result;
  const std::string_view text = marked.text;
  for (std::size_t at = 0; at < text.size();) {
    const utf8::Decoded character = utf8::decode(text.substr(at));
    const std::size_t end = at + character.length;
    result.append(character.valid ? text.substr(at, character.length) : "\xEF\xBF\xBD",
                  marked.any_untrusted(at, end));
    at = end;
  }
  return result;
}

bool any_set(std::span<const std::uint8_t> untrusted) {
  return std::ranges::find(untrusted, 1) != untrusted.end();
}

// Encodes one text.
class Encoder {
 public:
  // `marks` may be null; otherwise they belong to `text`.
  Encoder(const TokenizerParts& parts, std::string_view text, const MarkedText* marks,
          EncodeWorkspace& workspace, const EncodeBounds& bounds)
      : parts_(parts),
        text_(text),
        marks_(marks),
        workspace_(workspace),
        watch_(bounds, parts.words_are_tokens) {
    workspace_.words.watch(&watch_);
    workspace_.model.watch(&watch_);
  }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;
  ~Encoder() {
    workspace_.words.watch(nullptr);
    workspace_.model.watch(nullptr);
  }

  Result<std::vector<std::int32_t>> run() {
    workspace_.raw.clear();
    const auto excludes = [&](const AddedToken& token, Span span) {
      return token.special && any_untrusted(span);
    };
    parts_.added.split_raw(text_, excludes, workspace_.raw);
    for (const AddedTokens::Stretch& stretch : workspace_.raw) {
      MOTLEY_TRY_VOID(watch_.step());
      if (stretch.id >= 0)
        ids_.push_back(stretch.id);
      else
        MOTLEY_TRY_VOID(encode_raw(stretch.span));
    }
    return std::move(ids_);
  }

 private:
  bool any_untrusted(Span span) const {
    return marks_ != nullptr && marks_->any_untrusted(span.begin, span.end);
  }

  Result<void> encode_raw(Span span) {
    const std::string_view text = text_.substr(span.begin, span.end - span.begin);
    Draft draft{.opens = span.begin == 0};
    if (any_untrusted(span)) {
      draft.untrusted.assign(text.size(), 0);
      for (const Span& untrusted : marks_->part(span.begin, span.end).untrusted)
        std::fill(draft.untrusted.begin() + static_cast<std::ptrdiff_t>(untrusted.begin),
                  draft.untrusted.begin() + static_cast<std::ptrdiff_t>(untrusted.end), 1);
    }
    if (parts_.normalizer.empty())
      return encode_normalized({.text = text, .untrusted = draft.untrusted, .opens = draft.opens});
    draft.text = text;
    MOTLEY_TRY_VOID(parts_.normalizer.apply(draft));
    MOTLEY_TRY_VOID(watch_.look());
    return encode_normalized(
        {.text = draft.text, .untrusted = draft.untrusted, .opens = draft.opens});
  }

  static Piece part_of(const Piece& whole, Span span) {
    const std::size_t size = span.end - span.begin;
    return {.text = whole.text.substr(span.begin, size),
            .untrusted = whole.untrusted.empty() ? whole.untrusted
                                                 : whole.untrusted.subspan(span.begin, size),
            .opens = whole.opens && span.begin == 0};
  }

  Result<void> encode_normalized(const Piece& piece) {
    workspace_.normalized.clear();
    const auto excludes = [&](const AddedToken& token, Span span) {
      return token.special && any_set(part_of(piece, span).untrusted);
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
    const bool guarded = parts_.model_has_special && !words.untrusted().empty();
    for (const Span& span : words.spans()) {
      MOTLEY_TRY_VOID(watch_.step());
      MOTLEY_TRY_VOID(watch_.check_tokens(ids_.size()));
      const std::size_t size = span.end - span.begin;
      const std::string_view word = words.text().substr(span.begin, size);
      if (guarded) {
        MOTLEY_TRY_VOID(parts_.model.encode_untrusted(word,
                                                      words.untrusted().subspan(span.begin, size),
                                                      parts_.special, workspace_.model, ids_));
      } else {
        MOTLEY_TRY_VOID(parts_.model.encode(word, workspace_.model, ids_));
      }
    }
    return watch_.check_tokens(ids_.size());
  }

  const TokenizerParts& parts_;
  std::string_view text_;
  const MarkedText* marks_;
  EncodeWorkspace& workspace_;
  EncodeWatch watch_;
  std::vector<std::int32_t> ids_;
};

Result<std::vector<std::int32_t>> run(const TokenizerParts& parts, std::string_view text,
                                      const MarkedText* marks, const EncodeOptions& options) {
  auto workspace = parts.workspaces.take();
  auto ids = Encoder(parts, text, marks, *workspace, options.bounds).run();
  if (text.size() <= max_kept_text) parts.workspaces.give_back(std::move(workspace));
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
  if (text.untrusted.empty() || options.special_in_untrusted)
    return encode(std::string_view(text.text), options);
  if (utf8::valid(text.text)) return run(*parts_, text.text, &text, options);
  const MarkedText whole = repaired(text);
  return run(*parts_, whole.text, &whole, options);
}

}  // namespace motley::text
