#include "engine/grammar/grammar.h"

#include <exception>
#include <limits>
#include <optional>
#include <support/logging.h>
#include <utility>
#include <variant>
#include <xgrammar/xgrammar.h>

#include "base/cat.h"
#include "base/check.h"
#include "engine/grammar/character_budget.h"

namespace motley::engine {
namespace {

// What the library said while it compiled on this thread.
thread_local std::string warning;  // NOLINT(cert-err58-cpp)

// The library's messages begin with words that mean nothing to who sent the grammar.
Error refused(std::string_view message, const GrammarSpec& spec) {
  constexpr std::string_view ours = "is false: ";
  constexpr std::string_view source = ".cc:";  // "[time] file.cc:line: "
  if (const std::size_t at = message.find(ours); at != std::string_view::npos) {
    message.remove_prefix(at + ours.size());
  } else if (const std::size_t line = message.find(source); line != std::string_view::npos) {
    const std::size_t end = message.find(": ", line + source.size());
    if (end != std::string_view::npos) message.remove_prefix(end + 2);
  }
  while (!message.empty() && (message.back() == '\n' || message.back() == '.'))
    message.remove_suffix(1);
  constexpr const char* names[] = {"json_object", "JSON schema", "regex", "grammar", "tools"};
  return {ErrorCode::invalid_argument, cat("can't follow it: ", message),
          names[static_cast<std::size_t>(spec.kind)], "change it, or leave that part out"};
}

// Lengths of strings are counted while the text is followed, which a grammar that is compiled from
// its own text can say.
std::optional<std::string> counting_text(const GrammarSpec& spec,
                                         const xgrammar::TokenizerInfo& tokens) {
  if (spec.text.find("maxLength") == std::string::npos) return std::nullopt;
  std::string text;
  if (spec.kind == GrammarSpec::Kind::json_schema) {
    text = xgrammar::Grammar::FromJSONSchema(spec.text).ToString();
  } else if (spec.kind == GrammarSpec::Kind::structural_tag) {
    const auto read = xgrammar::Grammar::FromStructuralTag(spec.text, tokens);
    if (const auto* const grammar = std::get_if<xgrammar::Grammar>(&read))
      text = grammar->ToString();
  }
  std::string counting = with_character_budgets(text);
  if (counting == text) return std::nullopt;
  return counting;
}

xgrammar::CompiledGrammar compile_with(xgrammar::GrammarCompiler& compiler, const GrammarSpec& spec,
                                       const xgrammar::TokenizerInfo& tokens) {
  if (const auto counting = counting_text(spec, tokens)) return compiler.CompileGrammar(*counting);
  switch (spec.kind) {
    case GrammarSpec::Kind::json_object:
      return compiler.CompileJSONSchema(R"({"type": "object"})");
    case GrammarSpec::Kind::json_schema:
      return compiler.CompileJSONSchema(spec.text);
    case GrammarSpec::Kind::regex:
      return compiler.CompileRegex(spec.text);
    case GrammarSpec::Kind::structural_tag:
      return compiler.CompileStructuralTag(spec.text);
    case GrammarSpec::Kind::ebnf:
      break;
  }
  return compiler.CompileGrammar(spec.text);
}

std::vector<int> ids_of(const std::vector<std::int32_t>& ids) { return {ids.begin(), ids.end()}; }

}  // namespace

Result<GrammarVocabulary> GrammarVocabulary::create(const std::vector<std::string>& bytes,
                                                    std::int64_t width,
                                                    const std::vector<std::int32_t>& end_ids) {
  if (width > std::numeric_limits<std::int32_t>::max() ||
      static_cast<std::int64_t>(bytes.size()) > width) {
    return Error(ErrorCode::bad_file,
                 cat("the tokenizer has ", bytes.size(), " tokens, the model ", width),
                 "tokenizer.json", "use the tokenizer of this model");
  }
  try {
    // More than what check_grammar() lets pass ever needs, and nothing that the environment
    // changes.
    xgrammar::SetMaxRecursionDepth(10'000);
    auto tokens = std::make_shared<xgrammar::TokenizerInfo>(
        bytes, xgrammar::VocabType::RAW, static_cast<int>(width), ids_of(end_ids));
    return GrammarVocabulary(std::move(tokens), width);
  } catch (const std::exception& problem) {
    return Error(ErrorCode::bad_file, cat("no grammar can use its tokens: ", problem.what()),
                 "tokenizer.json", "serve the model without grammars");
  }
}

Result<Grammar> Grammar::compile(const GrammarSpec& spec, const GrammarVocabulary& vocabulary) {
  warning.clear();
  try {
    // On this thread alone, and without the library's own cache.
    xgrammar::GrammarCompiler compiler(*vocabulary.tokens_, 1, false);
    auto compiled = std::make_shared<xgrammar::CompiledGrammar>(
        compile_with(compiler, spec, *vocabulary.tokens_));
    if (!warning.empty()) return refused(warning, spec);
    const std::size_t bytes = compiled->MemorySizeBytes();
    return Grammar(std::move(compiled), bytes);
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::out_of_memory, "no memory left to compile a grammar", "grammar",
                 "send a smaller one");
  } catch (const std::exception& problem) {
    return refused(problem.what(), spec);
  }
}

GrammarState::GrammarState(const Grammar& grammar, const std::vector<std::int32_t>& end_ids)
    : matcher_(std::make_unique<xgrammar::GrammarMatcher>(
          *grammar.compiled_, end_ids.empty() ? std::nullopt : std::optional(ids_of(end_ids)))) {}
GrammarState::GrammarState(std::unique_ptr<xgrammar::GrammarMatcher> matcher)
    : matcher_(std::move(matcher)) {}
GrammarState::GrammarState(GrammarState&&) noexcept = default;
GrammarState& GrammarState::operator=(GrammarState&&) noexcept = default;
GrammarState::~GrammarState() = default;

void GrammarState::fill_mask(std::span<std::uint32_t> words) {
  std::int64_t size = static_cast<std::int64_t>(words.size());
  DLTensor mask{};
  mask.data = words.data();
  mask.device = {kDLCPU, 0};
  mask.ndim = 1;
  mask.dtype = xgrammar::GetBitmaskDLType();
  mask.shape = &size;
  matcher_->FillNextTokenBitmask(&mask);
}

bool GrammarState::accept(std::int32_t token) { return matcher_->AcceptToken(token); }
void GrammarState::rollback(int tokens) { matcher_->Rollback(tokens); }
bool GrammarState::ended() const { return matcher_->IsTerminated(); }
bool GrammarState::may_end() const { return matcher_->IsCompleted(); }
std::string GrammarState::forced_text() { return matcher_->FindJumpForwardString(); }

GrammarState GrammarState::fork() const {
  return GrammarState(std::make_unique<xgrammar::GrammarMatcher>(matcher_->Fork()));
}

}  // namespace motley::engine

// The library's log, as its build asks for it.
namespace xgrammar {

// Caught at the edge above: the library checks texts of users with it.
void LogFatalImpl(const std::string& file, int line, const std::string& message) {
  throw LogFatalError(file, line, message);
}

void LogMessageImpl(const std::string& /*file*/, int /*line*/, int level,
                    const std::string& message) {
  if (level >= XGRAMMAR_LOG_LEVEL_WARNING && motley::engine::warning.empty())
    motley::engine::warning = message;
}

}  // namespace xgrammar
