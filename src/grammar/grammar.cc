#include "grammar/grammar.h"

#include <exception>
#include <limits>
#include <optional>
#include <stdexcept>
#include <support/logging.h>
#include <utility>
#include <variant>
#include <xgrammar/xgrammar.h>

#include "base/cat.h"
#include "base/check.h"
#include "base/json/json.h"
#include "grammar/check/character_budget.h"
#include "grammar/json_text.h"
#include "grammar/schema/schema.h"

namespace motley::grammar {
namespace {

// The library's last warning while it compiled on this thread.
thread_local std::string warning;  // NOLINT(cert-err58-cpp)

// Strips the prefix of the library's messages, which means nothing to the client.
Error refused(std::string_view message, const Spec& spec) {
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

// The library's printed grammar of JSON, with bounds that the library cannot express.
std::string bounded(const xgrammar::Grammar& grammar) {
  return with_bounded_json(with_character_budgets(grammar.ToString()));
}

std::string json_grammar(const std::string& schema, bool any_whitespace) {
  return bounded(xgrammar::Grammar::FromJSONSchema(
      schema, any_whitespace, std::nullopt, std::nullopt, true,
      any_whitespace ? std::optional(whitespace_mark) : std::nullopt));
}

// A format of a structural tag that holds a schema, in any of its styles.
std::string format_grammar(const json::Object& format, bool any_whitespace) {
  const json::Value* const style = format.find("style");
  const bool is_json =
      style == nullptr || style->if_string() == nullptr || *style->if_string() == "json";
  if (is_json && !any_whitespace)
    return json_grammar(json::write(*format.find("json_schema")), false);
  std::vector<json::Member> members;
  for (const json::Member& member : format.members()) {
    if (member.key != "max_whitespace_cnt") members.push_back(member);
  }
  members.push_back({"max_whitespace_cnt", whitespace_mark});
  const json::Value tag(
      json::Object::make(
          {{"type", "structural_tag"}, {"format", json::Object::make(std::move(members)).value()}})
          .value());
  auto read = xgrammar::Grammar::FromStructuralTag(json::write(tag));
  if (const auto* const grammar = std::get_if<xgrammar::Grammar>(&read)) return bounded(*grammar);
  throw std::runtime_error(std::visit(
      [](const auto& problem) -> std::string {
        if constexpr (requires { problem.what(); }) return problem.what();
        return {};
      },
      read));
}

// The same tag, with schemas replaced by grammars.
json::Value with_grammars(const json::Value& format, bool any_whitespace) {
  if (const json::Array* const list = format.if_array()) {
    json::Array each;
    for (const json::Value& value : *list) each.push_back(with_grammars(value, any_whitespace));
    return each;
  }
  const json::Object* const object = format.if_object();
  if (object == nullptr) return format;
  std::vector<json::Member> members;
  if (object->contains("json_schema")) {
    members = {{"type", "grammar"}, {"grammar", format_grammar(*object, any_whitespace)}};
  } else {
    for (const json::Member& member : object->members())
      members.push_back({member.key, with_grammars(member.value, any_whitespace)});
  }
  return json::Object::make(std::move(members)).value();
}

xgrammar::CompiledGrammar compile_with(xgrammar::GrammarCompiler& compiler, const Spec& spec) {
  switch (spec.kind) {
    case Spec::Kind::json_object:
      return compiler.CompileGrammar(json_grammar(R"({"type": "object"})", spec.any_whitespace));
    case Spec::Kind::json_schema:
      return compiler.CompileGrammar(json_grammar(spec.text, spec.any_whitespace));
    case Spec::Kind::regex:
      return compiler.CompileRegex(spec.text);
    case Spec::Kind::structural_tag:
      return compiler.CompileStructuralTag(json::write(with_grammars(
          json::parse(spec.text, "tools", {.depth = 1000}).value(), spec.any_whitespace)));
    case Spec::Kind::ebnf:
      break;
  }
  return compiler.CompileGrammar(spec.text);
}

std::vector<int> ids_of(const std::vector<std::int32_t>& ids) { return {ids.begin(), ids.end()}; }

}  // namespace

Result<Vocabulary> Vocabulary::create(const Tokens& tokens) {
  if (tokens.width > std::numeric_limits<std::int32_t>::max() ||
      static_cast<std::int64_t>(tokens.bytes.size()) > tokens.width) {
    return Error(
        ErrorCode::bad_file,
        cat("the tokenizer has ", tokens.bytes.size(), " tokens, the model ", tokens.width),
        "tokenizer.json", "use the tokenizer of this model");
  }
  try {
    // More than any grammar needs that check() accepts; the environment cannot change it.
    xgrammar::SetMaxRecursionDepth(10'000);
    auto known = std::make_shared<xgrammar::TokenizerInfo>(tokens.bytes, xgrammar::VocabType::RAW,
                                                           static_cast<int>(tokens.width),
                                                           ids_of(tokens.end_ids));
    return Vocabulary(std::move(known), tokens.width);
  } catch (const std::exception& problem) {
    return Error(ErrorCode::bad_file, cat("no grammar can use its tokens: ", problem.what()),
                 "tokenizer.json", "serve the model without grammars");
  }
}

Result<Grammar> Grammar::compile(const Spec& spec, const Vocabulary& vocabulary) {
  MOTLEY_TRY(const ReadableSpec readable, read_schemas(spec));
  warning.clear();
  try {
    // On this thread only, and without the library's cache.
    xgrammar::GrammarCompiler compiler(*vocabulary.tokens_, 1, false);
    auto compiled =
        std::make_shared<xgrammar::CompiledGrammar>(compile_with(compiler, readable.spec));
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

Position::Position(const Grammar& grammar, const std::vector<std::int32_t>& end_ids)
    : matcher_(std::make_unique<xgrammar::GrammarMatcher>(
          *grammar.compiled_, end_ids.empty() ? std::nullopt : std::optional(ids_of(end_ids)))) {}
Position::Position(std::unique_ptr<xgrammar::GrammarMatcher> matcher)
    : matcher_(std::move(matcher)) {}
Position::Position(Position&&) noexcept = default;
Position& Position::operator=(Position&&) noexcept = default;
Position::~Position() = default;

void Position::fill_mask(std::span<std::uint32_t> words) {
  std::int64_t size = static_cast<std::int64_t>(words.size());
  DLTensor mask{};
  mask.data = words.data();
  mask.device = {kDLCPU, 0};
  mask.ndim = 1;
  mask.dtype = xgrammar::GetBitmaskDLType();
  mask.shape = &size;
  matcher_->FillNextTokenBitmask(&mask);
}

bool Position::accept(std::int32_t token) { return matcher_->AcceptToken(token); }
void Position::rollback(int tokens) { matcher_->Rollback(tokens); }
bool Position::ended() const { return matcher_->IsTerminated(); }
bool Position::may_end() const { return matcher_->IsCompleted(); }

Position Position::fork() const {
  return Position(std::make_unique<xgrammar::GrammarMatcher>(matcher_->Fork()));
}

}  // namespace motley::grammar

// The logging hooks that the library's build expects.
namespace xgrammar {

// Caught above: the library reports invalid user input with it.
void LogFatalImpl(const std::string& file, int line, const std::string& message) {
  throw LogFatalError(file, line, message);
}

void LogMessageImpl(const std::string& /*file*/, int /*line*/, int level,
                    const std::string& message) {
  if (level >= XGRAMMAR_LOG_LEVEL_WARNING && motley::grammar::warning.empty())
    motley::grammar::warning = message;
}

}  // namespace xgrammar
