#include "text/model_text.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "base/log.h"

namespace motley::text {

Result<ModelText> ModelText::load(const std::filesystem::path& folder) {
  MOTLEY_TRY(Tokenizer tokenizer, Tokenizer::load(folder));
  MOTLEY_TRY(TokenizerConfig config, load_tokenizer_config(folder));
  MOTLEY_TRY(GenerationConfig generation, load_generation_config(folder));
  return ModelText(std::move(tokenizer), std::move(config), std::move(generation));
}

ModelText::ModelText(Tokenizer tokenizer, TokenizerConfig config, GenerationConfig generation)
    : tokenizer_(std::move(tokenizer)),
      config_(std::move(config)),
      generation_(std::move(generation)) {
  if (const std::string* const end = config_.special_token("eos_token")) {
    if (const auto id = tokenizer_.id_of(*end)) generation_.add_end_token(*id);
  }
  // Files of a larger model of the family are often copied beside a cut-down one.
  if (const auto unknown = generation_.drop_unknown_end_tokens(); !unknown.empty()) {
    log::warning("text.unknown_end_tokens",
                 {{"ids", join(unknown)}, {"vocabulary", *generation_.vocabulary}});
  }
  for (const TemplateSource& each : config_.templates)
    templates_.push_back(
        {.name = each.name, .read = ChatTemplate::compile(each.source, each.where)});
}

Result<void> ModelText::use_template(const std::filesystem::path& file) {
  MOTLEY_TRY(TemplateSource source, read_template_file(file));
  MOTLEY_TRY(ChatTemplate compiled, ChatTemplate::compile(source.source, source.where));
  templates_.clear();
  templates_.push_back({.name = source.name, .read = std::move(compiled)});
  config_.templates = {std::move(source)};
  return {};
}

Result<void> ModelText::use_template_of_adapter(std::string adapter,
                                                const std::filesystem::path& file) {
  MOTLEY_TRY(const TemplateSource source, read_template_file(file));
  MOTLEY_TRY(ChatTemplate compiled, ChatTemplate::compile(source.source, source.where));
  of_adapters_.insert_or_assign(std::move(adapter), std::move(compiled));
  return {};
}

std::vector<std::string> ModelText::adapters_with_templates() const {
  std::vector<std::string> names;
  for (const auto& [name, unused] : of_adapters_) names.push_back(name);
  return names;
}

Result<MarkedText> ModelText::render(ChatInputs inputs) const {
  if (const auto own = of_adapters_.find(inputs.adapter); own != of_adapters_.end()) {
    inputs.special_tokens = config_.special_tokens;
    return own->second.render(inputs);
  }
  MOTLEY_TRY(const TemplateSource* const source, config_.template_for(inputs.tools.has_value()));
  const auto at = std::ranges::find(templates_, source->name, &NamedTemplate::name);
  if (!at->read.ok()) return at->read.error();
  inputs.special_tokens = config_.special_tokens;
  return at->read->render(inputs);
}

Result<MarkedText> ModelText::render(ChatInputs inputs, const ChatTemplate& chat_template,
                                     const RenderLimits& limits) const {
  inputs.special_tokens = config_.special_tokens;
  return chat_template.render(inputs, limits);
}

Result<ModelText::Chat> ModelText::chat(ChatInputs inputs, bool special_in_untrusted) const {
  MOTLEY_TRY(MarkedText text, render(std::move(inputs)));
  MOTLEY_TRY(auto ids, tokenizer_.encode(text, {.add_special_tokens = false,
                                                .special_in_untrusted = special_in_untrusted}));
  return Chat{.text = std::move(text), .ids = std::move(ids)};
}

}  // namespace motley::text
