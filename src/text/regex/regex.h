#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "text/chat/marked_text.h"

// The regular expressions of tokenizer files, with the syntax and matching of Oniguruma (Ruby,
// UTF-8), which their authors used.
namespace motley::text {

class Regex {
 public:
  // A DFA table if the pattern allows it, else a backtracker; tests force the latter.
  enum class Engine : std::uint8_t { table_if_possible, backtracker };

  // Refuses unsupported features by name. `where` names the pattern in messages.
  static Result<Regex> compile(std::string_view pattern, std::string_view where,
                               Engine engine = Engine::table_if_possible);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // The leftmost match that begins at byte `from` or later; look-behinds and anchors see the text
  // before it. `text` is valid UTF-8. An error, never "no match", if matching takes more steps than
  // reasonable patterns need.
  Result<std::optional<Span>> find(std::string_view text, std::size_t from) const {
    std::size_t spent = 0;
    return find(text, from, spent);
  }
  // The same for repeated searches of one text, whose steps are limited together. `spent` counts
  // them, from 0.
  Result<std::optional<Span>> find(std::string_view text, std::size_t from,
                                   std::size_t& spent) const;

 private:
  struct Program;
  explicit Regex(std::unique_ptr<const Program> program);

  std::unique_ptr<const Program> program_;
};

}  // namespace motley::text
