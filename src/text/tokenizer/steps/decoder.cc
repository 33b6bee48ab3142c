#include "text/tokenizer/steps/decoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/utf8.h"
#include "text/tokenizer/component.h"
#include "text/tokenizer/steps/byte_alphabet.h"
#include "text/tokenizer/steps/metaspace.h"
#include "text/tokenizer/steps/pattern.h"

namespace motley::text {
namespace {

constexpr std::string_view known_decoders =
    "ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace and Sequence";

constexpr std::size_t max_growth = 4096;

constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The byte of a token such as <0x0A>. Numbers are read as in the package: in upper or lower case,
// and a plus sign may replace the first digit.
std::optional<char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  const int high = token[3] == '+' ? 0 : digit_of(token[3]);
  const int low = digit_of(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

void replace_all(std::string& text, std::string_view pattern, std::string_view content) {
  for (std::size_t at = 0; (at = text.find(pattern, at)) != std::string::npos; at += content.size())
    text.replace(at, pattern.size(), content);
}

}  // namespace

// All tokens as one, each of whose characters is a byte.
class Decoder::ByteLevelStage final : public DecoderStage {
 public:
  using DecoderStage::DecoderStage;

  void write(std::string_view text) override { token_ += text; }

  void end_token() override {
    append_bytes_of_token(bytes_, token_);
    token_.clear();
    flush(bytes_.size() - utf8::incomplete_tail(bytes_));
  }

  void finish() override {
    flush(bytes_.size());
    next().end_token();
    next().finish();
  }

 private:
  void flush(std::size_t count) {
    const std::string_view certain = std::string_view(bytes_).substr(0, count);
    if (utf8::valid(certain))
      next().write(certain);
    else
      next().write(utf8::repaired(certain));
    bytes_.erase(0, count);
  }

  std::string token_;
  std::string bytes_;
};

// A run of byte tokens becomes one token if the bytes are UTF-8; otherwise each is U+FFFD. So
// nothing of a run is certain before its end.
class Decoder::ByteFallbackStage final : public DecoderStage {
 public:
  using DecoderStage::DecoderStage;

  void write(std::string_view text) override { token_ += text; }

  void end_token() override {
    if (const auto byte = byte_of_token(token_)) {
      run_ += *byte;
    } else {
      end_run();
      next().write(token_);
      next().end_token();
    }
    token_.clear();
  }

  void finish() override {
    end_run();
    next().finish();
  }

 private:
  void end_run() {
    if (run_.empty()) return;
    if (utf8::valid(run_)) {
      next().write(run_);
      next().end_token();
    } else {
      for (std::size_t i = 0; i < run_.size(); ++i) {
        next().write(replacement_character);
        next().end_token();
      }
    }
    run_.clear();
  }

  std::string token_;
  std::string run_;
};

class Decoder::FuseStage final : public DecoderStage {
 public:
  using DecoderStage::DecoderStage;

  void write(std::string_view text) override { next().write(text); }
  void end_token() override {}
  void finish() override {
    next().end_token();
    next().finish();
  }
};

class Decoder::ReplaceStage final : public DecoderStage {
 public:
  ReplaceStage(const Replace& step, DecoderStage* next) : DecoderStage(next), step_(step) {}

  void write(std::string_view text) override {
    held_ += text;
    std::size_t done = 0;
    for (std::size_t at = 0; (at = held_.find(step_.pattern, done)) != std::string::npos;) {
      next().write(std::string_view(held_).substr(done, at - done));
      next().write(step_.content);
      done = at + step_.pattern.size();
    }
    const std::size_t certain = held_.size() - beginning_of_match(done);
    next().write(std::string_view(held_).substr(done, certain - done));
    held_.erase(0, certain);
  }

  void end_token() override {
    next().write(held_);
    held_.clear();
    next().end_token();
  }

 private:
  // The length of a suffix that may begin a match, within the bytes from `from` on.
  std::size_t beginning_of_match(std::size_t from) const {
    std::size_t count = std::min(held_.size() - from, step_.pattern.size() - 1);
    const std::string_view pattern = step_.pattern;
    while (count > 0 && !held_.ends_with(pattern.substr(0, count))) --count;
    return count;
  }

  const Replace& step_;
  std::string held_;
};

// Removes a character at the begin and end of each token, up to a number of times.
class Decoder::StripStage final : public DecoderStage {
 public:
  StripStage(const Strip& step, DecoderStage* next)
      : DecoderStage(next), step_(step), left_(step.start) {
    utf8::append(character_, step.content);
  }

  void write(std::string_view text) override {
    while (left_ > 0 && text.starts_with(character_)) {
      text.remove_prefix(character_.size());
      --left_;
    }
    if (text.empty()) return;
    left_ = 0;
    // Characters at the end that may be removed are held back.
    std::size_t held = 0;
    std::size_t plain = text.size();
    while (held < step_.stop && text.substr(0, plain).ends_with(character_)) {
      plain -= character_.size();
      ++held;
    }
    if (plain > 0) release(held_);
    next().write(text.substr(0, plain));
    held_ += held;
    if (held_ > step_.stop) release(held_ - step_.stop);
  }

  void end_token() override {
    held_ = 0;
    left_ = step_.start;
    next().end_token();
  }

 private:
  void release(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) next().write(character_);
    held_ -= count;
  }

  Strip step_;
  std::string character_;
  std::size_t left_;      // how many more may be removed at the begin
  std::size_t held_ = 0;  // how many were held back at the end
};

class Decoder::MetaspaceStage final : public DecoderStage {
 public:
  MetaspaceStage(const Metaspace& step, DecoderStage* next)
      : DecoderStage(next), dropped_(step.prefixed) {
    utf8::append(replacement_, step.replacement);
  }

  void write(std::string_view text) override {
    std::string spaced;
    for (std::size_t at = 0; at < text.size();) {
      if (text.substr(at).starts_with(replacement_)) {
        if (!dropped_) spaced += ' ';
        at += replacement_.size();
      } else {
        spaced += text[at++];
      }
    }
    next().write(spaced);
  }

  void end_token() override {
    dropped_ = false;
    next().end_token();
  }

 private:
  std::string replacement_;
  bool dropped_;  // whether the replacement is dropped: in the first token
};

// The behaviour without a decoder.
class Decoder::JoinWithSpacesStage final : public DecoderStage {
 public:
  using DecoderStage::DecoderStage;

  void write(std::string_view text) override {
    if (std::exchange(space_due_, false)) next().write(" ");
    next().write(text);
  }

  void end_token() override {
    if (std::exchange(space_due_, true)) next().write(" ");  // the token was empty
  }

 private:
  bool space_due_ = false;
};

class Decoder::OutputStage final : public DecoderStage {
 public:
  explicit OutputStage(std::string& output) : DecoderStage(nullptr), output_(output) {}

  void write(std::string_view text) override { output_ += text; }
  void end_token() override {}
  void finish() override {}

 private:
  std::string& output_;
};

Result<Decoder> Decoder::parse(const json::Value* section, std::string_view where) {
  Decoder decoder;
  if (section == nullptr || section->is_null()) {
    decoder.steps_.emplace_back(JoinWithSpaces{});
    return decoder;
  }
  MOTLEY_TRY(const std::vector<Component> components, read_components(section, "decoders", where));
  std::size_t growth = 1;  // an upper bound of the bytes that the steps write for one
  for (const Component& component : components) {
    MOTLEY_TRY(Step step, parse_step(component));
    if (const Replace* replace = std::get_if<Replace>(&step))
      growth *= 1 + replace->content.size() / replace->pattern.size();
    else if (std::holds_alternative<ByteLevel>(step))
      growth *= replacement_character.size();
    if (growth > max_growth)
      return Error(ErrorCode::unsupported, "makes a text far longer than its tokens",
                   std::string(where), "look at what its Replace steps write");
    decoder.steps_.push_back(std::move(step));
  }
  return decoder;
}

Result<Decoder::Step> Decoder::parse_step(const Component& component) {
  const std::string& type = component.type();
  if (type == "ByteLevel") {
    MOTLEY_TRY_VOID(component.has_only({"add_prefix_space", "trim_offsets", "use_regex"}));
    return Step(ByteLevel{});
  }
  if (type == "ByteFallback" || type == "Fuse") {
    MOTLEY_TRY_VOID(component.has_only({}));
    return type == "Fuse" ? Step(Fuse{}) : Step(ByteFallback{});
  }
  if (type == "Replace") {
    MOTLEY_TRY_VOID(component.has_only({"pattern", "content"}));
    MOTLEY_TRY(const Pattern pattern, Pattern::parse(component, "pattern"));
    MOTLEY_TRY(std::string content, component.string("content"));
    if (pattern.literal() == nullptr || pattern.literal()->empty())
      return component.refused_value("pattern", json::write(*component.find("pattern")),
                                     "write a String that is not empty");
    return Step(Replace{*pattern.literal(), std::move(content)});
  }
  if (type == "Strip") {
    MOTLEY_TRY_VOID(component.has_only({"content", "start", "stop"}));
    MOTLEY_TRY(const char32_t content, component.character("content"));
    MOTLEY_TRY(const std::int64_t start, component.count("start"));
    MOTLEY_TRY(const std::int64_t stop, component.count("stop"));
    return Step(Strip{.content = content,
                      .start = static_cast<std::size_t>(start),
                      .stop = static_cast<std::size_t>(stop)});
  }
  if (type == "Metaspace") {
    MOTLEY_TRY(const MetaspaceFields fields, MetaspaceFields::parse(component));
    return Step(Metaspace{.replacement = fields.replacement,
                          .prefixed = fields.scheme != PrependScheme::never});
  }
  return component.refused_type(known_decoders);
}

std::vector<std::unique_ptr<DecoderStage>> Decoder::start(std::string& output) const {
  std::vector<std::unique_ptr<DecoderStage>> stages;
  stages.push_back(std::make_unique<OutputStage>(output));
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    DecoderStage* next = stages.back().get();
    struct {
      DecoderStage* next;
      std::unique_ptr<DecoderStage> operator()(const ByteLevel&) const {
        return std::make_unique<ByteLevelStage>(next);
      }
      std::unique_ptr<DecoderStage> operator()(const ByteFallback&) const {
        return std::make_unique<ByteFallbackStage>(next);
      }
      std::unique_ptr<DecoderStage> operator()(const Fuse&) const {
        return std::make_unique<FuseStage>(next);
      }
      std::unique_ptr<DecoderStage> operator()(const Replace& replace) const {
        return std::make_unique<ReplaceStage>(replace, next);
      }
      std::unique_ptr<DecoderStage> operator()(const Strip& strip) const {
        return std::make_unique<StripStage>(strip, next);
      }
      std::unique_ptr<DecoderStage> operator()(const Metaspace& metaspace) const {
        return std::make_unique<MetaspaceStage>(metaspace, next);
      }
      std::unique_ptr<DecoderStage> operator()(const JoinWithSpaces&) const {
        return std::make_unique<JoinWithSpacesStage>(next);
      }
    } const make{next};
    stages.push_back(std::visit(make, *step));
  }
  std::ranges::reverse(stages);
  return stages;
}

std::string Decoder::bytes_of(std::string_view token) const {
  std::string bytes(token);
  for (const Step& step : steps_) {
    if (std::holds_alternative<ByteLevel>(step)) {
      std::string decoded;
      append_bytes_of_token(decoded, bytes);
      bytes = std::move(decoded);
    } else if (std::holds_alternative<ByteFallback>(step)) {
      if (const auto byte = byte_of_token(bytes)) return {*byte};
    } else if (const auto* const replace = std::get_if<Replace>(&step)) {
      replace_all(bytes, replace->pattern, replace->content);
    } else if (const auto* const metaspace = std::get_if<Metaspace>(&step)) {
      std::string mark;
      utf8::append(mark, metaspace->replacement);
      replace_all(bytes, mark, " ");
    } else if (std::holds_alternative<JoinWithSpaces>(step)) {
      bytes.insert(0, " ");
    }
    // Strip only acts at the ends of a text, and Fuse changes no byte.
  }
  return bytes;
}

}  // namespace motley::text
