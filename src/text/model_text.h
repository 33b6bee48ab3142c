#pragma once

#include <filesystem>
#include <functional>
#include <map>
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

// Everything in a model's folder that concerns text: the tokenizer, the form of conversations, and
// the end of answers. Thread-safe.
class ModelText {
 public:
  // tokenizer.json is required; everything else may be absent.
  static Result<ModelText> load(const std::filesystem::path& folder);

  // Replaces the model's templates by the one in a file. A template that can't be compiled is an
  // error here, unlike one of the model's folder.
  Result<void> use_template(const std::filesystem::path& file);
  // The same for conversations with one adapter.
  Result<void> use_template_of_adapter(std::string adapter, const std::filesystem::path& file);
  // The adapters that have templates of their own.
  std::vector<std::string> adapters_with_templates() const;

  const Tokenizer& tokenizer() const { return tokenizer_; }
  const TokenizerConfig& config() const { return config_; }

  // The tokenizer's end token is added to the end tokens; those outside of the model's vocabulary
  // are removed and logged.
  const GenerationConfig& generation() const { return generation_; }

  struct Chat {
    MarkedText text;
    std::vector<std::int32_t> ids;
  };

  // Renders a conversation with the model's template, or its adapter's, and tokenises it. The
  // post-processor adds no tokens, because the template has everything that surrounds a
  // conversation. `special_in_untrusted` recognises special tokens in the text of messages, as
  // Hugging Face does. The special tokens of the inputs are replaced by the model's.
  Result<Chat> chat(ChatInputs inputs, bool special_in_untrusted) const;
  // Only the text.
  Result<MarkedText> render(ChatInputs inputs) const;
  // With a template that is not the model's own.
  Result<MarkedText> render(ChatInputs inputs, const ChatTemplate& chat_template,
                            const RenderLimits& limits) const;

 private:
  struct NamedTemplate {
    std::string name;
    // An unreadable template does not prevent prompts without one.
    Result<ChatTemplate> read;
  };

  ModelText(Tokenizer tokenizer, TokenizerConfig config, GenerationConfig generation);

  Tokenizer tokenizer_;
  TokenizerConfig config_;
  GenerationConfig generation_;
  std::vector<NamedTemplate> templates_;
  std::map<std::string, ChatTemplate, std::less<>> of_adapters_;
};

}  // namespace motley::text
