#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "base/cat.h"
#include "base/system/temporary_folder.h"
#include "server/fake_engine.h"
#include "server/http/http_server.h"
#include "server/http_client.h"
#include "server/service.h"
#include "text/model_text.h"

namespace motley::server {

// A golden tokenizer and the token that ends its answers.
struct TestTokenizer {
  std::string name;
  std::string end;
};

// Has <|im_start|>, <think> and <tool_call> too.
inline TestTokenizer qwen_tokenizer() { return {.name = "qwen2", .end = "<|im_end|>"}; }

// Its post-processor begins each text with <|begin_of_text|>.
inline TestTokenizer llama_tokenizer() { return {.name = "llama3", .end = "<|eot_id|>"}; }

// Of Qwen3's kind, shortened.
inline constexpr std::string_view qwen_template = R"({%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}
<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %})";

// A tokenizer and a template.
inline text::ModelText make_model_text(const std::filesystem::path& folder,
                                       const TestTokenizer& tokenizer,
                                       std::string_view chat_template = qwen_template) {
  std::filesystem::copy_file(cat(MOTLEY_TOKENIZERS "/", tokenizer.name, "/tokenizer.json"),
                             folder / "tokenizer.json");
  std::ofstream(folder / "tokenizer_config.json") << R"({"eos_token": ")" << tokenizer.end << "\"}";
  std::ofstream(folder / "chat_template.jinja") << chat_template;
  return text::ModelText::load(folder).value();
}

struct TestServerOptions {
  TestTokenizer tokenizer = qwen_tokenizer();
  std::string chat_template = std::string(qwen_template);
  serving::FormNames forms = {};
  std::vector<std::string> keys = {};
  std::vector<std::string> admin_keys = {};
  std::string holders = {};  // as --keys has them
  bool adapter_loading = false;
  const lora::BaseView* model = nullptr;  // of pushed adapters
  std::optional<std::filesystem::path> adapter_root = {};
  OriginPolicy::Options origins = {};
  HttpLimits limits = {};
  Watchdog* watchdog = nullptr;
  std::size_t request_memory_bytes = std::size_t{2} << 30;
  std::int64_t max_sequence_tokens = 1000;
  bool strict_fields = false;
  bool request_templates = false;
  bool routed_experts = false;       // those of the fake engine
  engine::Engine* engine = nullptr;  // in place of the fake one
  // Adapters' names and the templates of their own.
  std::vector<std::pair<std::string, std::string>> adapter_templates = {};
  Timers* timers = nullptr;  // in place of the system's
  TrustedProxies proxies = {};
  bool private_prefixes = false;
  std::function<Result<std::optional<engine::AdapterSpec>>(const std::string&)> find_adapter = {};
  std::vector<std::string> aliases = {};  // of the base
  PushMemory::Options push_memory = {};
  std::string default_adapter = {};
};

// Whether it is true within a minute.
template <class Condition>
bool eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the server needs the processor
  }
  return true;
}

// A whole server over a fake engine, on a port that the kernel picks.
class TestServer {
 public:
  explicit TestServer(const TestServerOptions& options = {})
      : text_(make_model_text(folder_.path(), options.tokenizer, options.chat_template)),
        engine_(text_.tokenizer()) {
    for (const auto& [name, source] : options.adapter_templates) {
      const auto file = folder_.file("template_of_an_adapter.jinja", source);
      text_.use_template_of_adapter(name, file).value();
    }
    service_ = std::make_unique<Service>(
        text_, options.engine != nullptr ? *options.engine : engine_,
        Service::Options{
            .planner = {.base = "base",
                        .aliases = options.aliases,
                        .vocabulary = text_.tokenizer().size(),
                        .prompts = {.max_sequence_tokens = options.max_sequence_tokens,
                                    .keeps_states =
                                        options.engine != nullptr && options.engine->keeps_states(),
                                    .forms = options.forms},
                        .strict_fields = options.strict_fields,
                        .request_templates = options.request_templates,
                        .routed_experts = options.routed_experts ? FakeEngine::routed_sizes
                                                                 : engine::RoutedExpertsSizes{},
                        .private_prefixes = options.private_prefixes},
            .keys = options.holders.empty()
                        ? ApiKeys(options.keys)
                        : ApiKeys::parse_holders(options.holders, "holders").value(),
            .admin_keys = ApiKeys(options.admin_keys),
            .origins = options.origins,
            .http_stats = [this] { return http_->stats(); },
            .watchdog = options.watchdog,
            .adapter_loading = options.adapter_loading,
            .model = options.model,
            .adapter_root = options.adapter_root,
            .push_memory = options.push_memory,
            .default_adapter = options.default_adapter,
            .info = {.compute = "bfloat16",
                     .logprobs_mode = "processed_logprobs",
                     .max_adapter_rank = 64,
                     .ranks = 2,
                     .replicas = 3,
                     .arithmetic = {{"compute", "bfloat16"}}},
            .find_adapter = options.find_adapter,
            .request_memory_bytes = options.request_memory_bytes});
    http_ = HttpServer::listen(
                {.limits = options.limits, .proxies = options.proxies, .timers = options.timers},
                {.handler = [this](Exchange& exchange) { return service_->answer(exchange); },
                 .admit = [this](const HttpHead& head) { return service_->admit(head); },
                 .refuse = [this](const Error& error,
                                  const HttpHead& head) { return service_->refuse(error, head); }})
                .value();
    http_->start();
  }

  ~TestServer() { http_->stop(); }

  std::uint16_t port() const { return http_->port(); }
  FakeEngine& engine() { return engine_; }
  Service& service() { return *service_; }
  HttpServer& http() { return *http_; }
  const text::ModelText& text() const { return text_; }

  Received ask(std::string_view request) const { return server::ask(port(), request); }
  // Whether /metrics comes to have that line. A request is counted, and what it was charged given
  // back, when its answer has been sent: a moment after its client may have it.
  bool comes_to_show(std::string_view line) const {
    return eventually(
        [&] { return ask(get("/metrics")).body.find(cat("\n", line, "\n")) != std::string::npos; });
  }

 private:
  TemporaryFolder folder_;
  text::ModelText text_;
  std::unique_ptr<HttpServer> http_;  // outlives what posts to it
  FakeEngine engine_;
  std::unique_ptr<Service> service_;
};

}  // namespace motley::server
