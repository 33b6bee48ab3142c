#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "base/cat.h"
#include "base/temporary_folder.h"
#include "server/fake_backend.h"
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

// A tokenizer, and a template of Qwen3's kind, shortened.
inline text::ModelText make_model_text(const std::filesystem::path& folder,
                                       const TestTokenizer& tokenizer) {
  std::filesystem::copy_file(cat(MOTLEY_TOKENIZERS "/", tokenizer.name, "/tokenizer.json"),
                             folder / "tokenizer.json");
  std::ofstream(folder / "tokenizer_config.json") << R"({"eos_token": ")" << tokenizer.end << "\"}";
  std::ofstream(folder / "chat_template.jinja") << R"({%- if tools %}<|im_start|>system
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
  return text::ModelText::load(folder).value();
}

struct TestServerOptions {
  TestTokenizer tokenizer = qwen_tokenizer();
  std::vector<std::string> keys = {};
  bool adapter_loading = false;
  std::optional<std::filesystem::path> adapter_root = {};
  HttpLimits limits = {};
};

// A whole server over a fake engine, on a port that the kernel picks.
class TestServer {
 public:
  explicit TestServer(const TestServerOptions& options = {})
      : text_(make_model_text(folder_.path(), options.tokenizer)), backend_(text_.tokenizer()) {
    service_ = std::make_unique<Service>(
        text_, backend_,
        Service::Options{.planner = {.base = "base",
                                     .vocabulary = text_.tokenizer().size(),
                                     .max_sequence_tokens = backend_.max_sequence_tokens()},
                         .keys = ApiKeys(options.keys),
                         .adapter_loading = options.adapter_loading,
                         .adapter_root = options.adapter_root});
    http_ = HttpServer::listen(
                {.limits = options.limits},
                [this](Exchange& exchange) { return service_->answer(exchange); },
                [this](const Error& error) { return service_->refuse(error); })
                .value();
    http_->start();
  }

  ~TestServer() { http_->stop(); }

  std::uint16_t port() const { return http_->port(); }
  FakeBackend& backend() { return backend_; }
  Service& service() { return *service_; }
  HttpServer& http() { return *http_; }
  const text::ModelText& text() const { return text_; }

  Received ask(std::string_view request) const { return server::ask(port(), request); }

 private:
  TemporaryFolder folder_;
  text::ModelText text_;
  std::unique_ptr<HttpServer> http_;  // outlives what posts to it
  FakeBackend backend_;
  std::unique_ptr<Service> service_;
};

}  // namespace motley::server
