// motley chat over Qwen3.5, whose delta nets keep a state for each sequence.

#include "cli/conversation.h"

#include <fstream>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "base/system/temporary_folder.h"
#include "cli/engine_stack_source.h"
#include "serving/engine_stack.h"
#include "text/model_text.h"

namespace motley::cli {
namespace {

namespace fs = std::filesystem;

// A golden with a tokenizer, of which digits are in its vocabulary. The template begins reasoning
// in the generation prompt, of which later prompts have the first token. It leaves answers out:
// they are random, and their text may have tokens that the vocabulary lacks.
fs::path make_chat_model(const fs::path& folder) {
  const fs::path golden = fs::path(MOTLEY_GOLDENS) / "qwen3_5_moe";
  for (const char* const name : {"config.json", "generation_config.json", "model.safetensors"})
    fs::copy_file(golden / name, folder / name);
  fs::copy_file(fs::path(MOTLEY_TOKENIZERS) / "qwen2" / "tokenizer.json",
                folder / "tokenizer.json");
  std::ofstream(folder / "tokenizer_config.json") << R"({"eos_token": "!"})";
  std::ofstream(folder / "chat_template.jinja")
      << "{% for m in messages %}{{ 1 if m.role == 'user' else 2 }}"
         "{{ m.content if m.role == 'user' }}3{% endfor %}"
         "{% if add_generation_prompt %}2444444444{% endif %}";
  return folder;
}

// Answers are random, and end soon because they are interrupted.
TEST(Conversation, TheSecondTurnOfAModelWithStatesComputesWhatIsNew) {
  const TemporaryFolder folder;
  ModelSettings settings{.model = make_chat_model(folder.path()), .name = "base"};
  settings.engine.compute.device.kind = tensor::DeviceChoice::Kind::cpu;
  settings.engine.memory = {.kv_memory = std::uint64_t{8} << 20,
                            .state_memory = std::uint64_t{8} << 20};
  const text::ModelText text = text::ModelText::load(settings.model).value();
  const std::unique_ptr<serving::EngineStack> stack =
      serving::EngineStack::load(settings.engine, source_of_folder(settings, text)).value();
  const serving::Planner planner = make_chat_planner(stack->engine(), text, false);
  Conversation conversation(stack->engine(), planner);
  const auto say = [&](const std::string& message) {
    bool begun = false;
    conversation
        .say(
            message, [&](const serving::ParsedOutput&) { begun = true; }, [&] { return begun; })
        .value();
    return stack->engine().stats();
  };
  EXPECT_EQ(say(std::string(40, '7')).prefix_hit_tokens, 0U);
  // The conversation had 42 tokens, and the last border of its prompt was in what begins reasoning.
  const engine::Stats after = say("55");
  EXPECT_EQ(after.prefix_hit_tokens, 32U);
  EXPECT_EQ(after.prefix_state_missed_tokens, 0U);
}

}  // namespace
}  // namespace motley::cli
