#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "text/chat/marked_text.h"

// The regular expressions of tokenizer files, read and matched as Oniguruma (Ruby syntax, UTF-8)
// does it, which is what their makers ran.
namespace motley::text {

class Regex {
 public:
  // A table that is followed a character at a time, for patterns that one can be made of; for
  // others, and for tests of the table, a backtracker.
  enum class Engine : std::uint8_t { table_if_possible, backtracker };

  // Refuses by name what a pattern uses and this engine lacks. `where` is what messages call it.
  static Result<Regex> compile(std::string_view pattern, std::string_view where,
                               Engine engine = Engine::table_if_possible);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // The leftmost match that begins at byte `from` or later; look-behinds and anchors see the text
  // before it. `text` is valid UTF-8. An error if matching takes more steps than a sane pattern
  // needs: never "no match".
  Result<std::optional<Span>> find(std::string_view text, std::size_t from) const {
    std::size_t spent = 0;
    return find(text, from, spent);
  }
  // The same for who searches a text again and again: all of its searches together may take so
  // many steps. `spent` is what they have taken, 0 at first.
  Result<std::optional<Span>> find(std::string_view text, std::size_t from,
                                   std::size_t& spent) const;

 private:
  struct Program;
  explicit Regex(std::unique_ptr<const Program> program);

  std::unique_ptr<const Program> program_;
};

}  // namespace motley::text
