#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/chat/chat_template.h"
#include "text/chat/marked_text.h"
#include "text/generation_config.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace motley::text {

// Everything that a model's folder says about text: its tokenizer, how conversations are written,
// and where answers end. Used from many threads at once.
class ModelText {
 public:
  // tokenizer.json must be there; everything else may be absent.
  static Result<ModelText> load(const std::filesystem::path& folder);

  const Tokenizer& tokenizer() const { return tokenizer_; }
  const TokenizerConfig& config() const { return config_; }

  // With the tokenizer's own end token among the end tokens, and without those beyond the model's
  // vocabulary, which a log line names.
  const GenerationConfig& generation() const { return generation_; }

  struct Chat {
    MarkedText text;
    std::vector<std::int32_t> ids;
  };

  // A conversation as the model's template writes it, and its tokens. No post-processor adds to
  // them: what belongs around a conversation is in the template. `special_in_untrusted` takes
  // special tokens in what messages say for what they look like, as Hugging Face does. The inputs'
  // own special tokens are replaced by the model's.
  Result<Chat> chat(ChatInputs inputs, bool special_in_untrusted) const;
  // The text alone.
  Result<MarkedText> render(ChatInputs inputs) const;
  // By a template that is not the model's own.
  Result<MarkedText> render(ChatInputs inputs, const ChatTemplate& chat_template,
                            const RenderLimits& limits) const;

 private:
  struct NamedTemplate {
    std::string name;
    // A template that can't be read is no reason to refuse prompts that need none.
    Result<ChatTemplate> read;
  };

  ModelText(Tokenizer tokenizer, TokenizerConfig config, GenerationConfig generation);

  Tokenizer tokenizer_;
  TokenizerConfig config_;
  GenerationConfig generation_;
  std::vector<NamedTemplate> templates_;
};

}  // namespace motley::text
