#include "cli/ask/side_by_side.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/cat.h"
#include "base/utf8.h"

namespace motley::cli {
namespace {

constexpr std::size_t narrowest = 32;  // minimum columns of a voice
constexpr std::size_t gap = 3;         // between voices
constexpr std::string_view plain = "\x1b[0m";
constexpr std::string_view dim = "\x1b[2m";
// The base's colour, then those of adapters, cyclically.
constexpr std::string_view base_colour = "\x1b[1m";
constexpr std::array<std::string_view, 6> colours = {"\x1b[1;36m", "\x1b[1;33m", "\x1b[1;32m",
                                                     "\x1b[1;35m", "\x1b[1;34m", "\x1b[1;31m"};

struct Range {
  char32_t first;
  char32_t last;
};
// Combining marks and joiners, which have no width.
constexpr std::array<Range, 7> without_width = {{{0x300, 0x36F},
                                                 {0x483, 0x489},
                                                 {0x591, 0x5BD},
                                                 {0x64B, 0x65F},
                                                 {0x200B, 0x200F},
                                                 {0x20D0, 0x20FF},
                                                 {0xFE00, 0xFE0F}}};
// Letters and pictograms of two columns.
constexpr std::array<Range, 9> wide = {{{0x1100, 0x115F},
                                        {0x2E80, 0x303E},
                                        {0x3041, 0xA4CF},
                                        {0xAC00, 0xD7A3},
                                        {0xF900, 0xFAFF},
                                        {0xFE30, 0xFE6F},
                                        {0xFF00, 0xFF60},
                                        {0x1F300, 0x1FAFF},
                                        {0x20000, 0x3FFFD}}};

template <std::size_t Count>
bool in(const std::array<Range, Count>& ranges, char32_t point) {
  return std::ranges::any_of(
      ranges, [&](const Range& range) { return range.first <= point && point <= range.last; });
}

std::size_t columns_of_point(char32_t point) {
  if (in(without_width, point)) return 0;
  return in(wide, point) ? 2 : 1;
}

bool is_control(char32_t point) {
  // Directional overrides would reorder the text around them.
  return point < 0x20 || (point >= 0x7F && point < 0xA0) || (point >= 0x202A && point <= 0x202E) ||
         (point >= 0x2066 && point <= 0x2069);
}

// Breaks text into lines, word by word.
class Wrapper {
 public:
  explicit Wrapper(std::size_t width) : width_(width) {}

  void add(char32_t point) {
    if (point == '\n') return end_line();
    if (point == ' ' || point == '\t') return end_word(), void(++spaces_);
    const char32_t shown = is_control(point) ? U'\xFFFD' : point;
    const std::size_t columns = std::min(columns_of_point(shown), width_);
    // A word longer than a line is broken.
    if (word_columns_ + columns > width_) end_word();
    utf8::append(word_, shown);
    word_columns_ += columns;
  }

  std::vector<std::string> take() && {
    end_word();
    if (!line_.empty()) lines_.push_back(std::move(line_));
    return std::move(lines_);
  }

 private:
  void end_word() {
    if (word_.empty()) return;
    if (columns_ > 0 && columns_ + spaces_ + word_columns_ > width_) break_line();
    if (!broken_) {
      const std::size_t indent =
          std::min(spaces_, width_ - std::min(width_, columns_ + word_columns_));
      line_.append(indent, ' ');
      columns_ += indent;
    }
    line_ += std::exchange(word_, {});
    columns_ += std::exchange(word_columns_, 0);
    spaces_ = 0;
    broken_ = false;
  }
  void break_line() {
    lines_.push_back(std::exchange(line_, {}));
    columns_ = 0;
    broken_ = true;
  }
  void end_line() {
    end_word();
    break_line();
    broken_ = false;
    spaces_ = 0;
  }

  std::size_t width_;
  std::vector<std::string> lines_;
  std::string line_;
  std::size_t columns_ = 0;  // of line_
  std::string word_;
  std::size_t word_columns_ = 0;
  std::size_t spaces_ = 0;  // before the word
  bool broken_ = false;     // the line continues a broken word
};

std::string repeated(std::string_view piece, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i) text += piece;
  return text;
}

// At most this many columns of it.
std::string cut(std::string_view text, std::size_t width) {
  std::vector<std::string> lines = wrapped(text, std::max<std::size_t>(width, 1));
  return lines.empty() || width == 0 ? std::string() : std::move(lines.front());
}

std::string status_of(const Voice& voice) {
  if (voice.failed) return "failed";
  if (voice.tokens == 0) return voice.ended ? "no tokens" : "waiting";
  return cat(voice.tokens, voice.tokens == 1 ? " token" : " tokens");
}

// "name ────────── 42 tokens"
std::string headline(const Voice& voice, std::string_view colour, std::size_t width) {
  const std::string name = cut(voice.name, width);
  const std::size_t left = width - columns_of(name);
  const std::string status = status_of(voice);
  if (left < status.size() + 3) return cat(colour, name, plain, std::string(left, ' '));
  return cat(colour, name, plain, dim, " ", repeated("─", left - status.size() - 2), " ", status,
             plain);
}

struct Cell {
  std::string head;
  std::vector<std::string> body;
};

Cell cell_of(const Voice& voice, std::string_view colour, std::size_t width) {
  Cell cell{.head = headline(voice, colour, width), .body = wrapped(voice.text, width)};
  if (voice.cut_off) cell.body.emplace_back("…");
  return cell;
}

// Adds one row of cells: headlines, and as many lines as the longest has or fit.
void add_row(std::vector<std::string>& lines, std::vector<Cell>& cells, std::size_t width,
             std::size_t room) {
  std::size_t height = 0;
  for (Cell& cell : cells) {
    if (cell.body.size() > room)
      cell.body.erase(cell.body.begin(), cell.body.end() - static_cast<std::ptrdiff_t>(room));
    height = std::max(height, cell.body.size());
  }
  std::string heads;
  for (const Cell& cell : cells)
    heads += cat(heads.empty() ? "" : std::string(gap, ' '), cell.head);
  lines.push_back(std::move(heads));
  for (std::size_t i = 0; i < height; ++i) {
    std::string line;
    std::size_t columns = 0;
    for (std::size_t at = 0; at < cells.size(); ++at) {
      const std::vector<std::string>& body = cells[at].body;
      if (i >= body.size()) continue;
      const std::size_t begin = at * (width + gap);
      line.append(begin - columns, ' ');
      line += body[i];
      columns = begin + columns_of(body[i]);
    }
    lines.push_back(std::move(line));
  }
}

}  // namespace

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const utf8::Decoded next = utf8::decode(text);
    columns += columns_of_point(next.code_point);
    text.remove_prefix(next.length);
  }
  return columns;
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  Wrapper wrapper(std::max<std::size_t>(width, 1));
  while (!text.empty()) {
    const utf8::Decoded next = utf8::decode(text);
    wrapper.add(next.code_point);
    text.remove_prefix(next.length);
  }
  return std::move(wrapper).take();
}

std::vector<std::string> side_by_side(const std::vector<Voice>& voices, const Canvas& canvas) {
  std::vector<std::string> lines;
  if (voices.empty()) return lines;
  const std::size_t canvas_width = std::max<std::size_t>(canvas.width, 1);
  const std::size_t most =
      std::clamp<std::size_t>((canvas_width + gap) / (narrowest + gap), 1, voices.size());
  const std::size_t rows = (voices.size() + most - 1) / most;
  const std::size_t columns = (voices.size() + rows - 1) / rows;
  const std::size_t width = (canvas_width - gap * (columns - 1)) / columns;
  // Every row has headlines, and an empty line after it.
  const std::size_t room =
      canvas.height ? std::max<std::size_t>(*canvas.height / rows, 3) - 2 : std::string::npos;
  for (std::size_t first = 0; first < voices.size(); first += columns) {
    std::vector<Cell> cells;
    for (std::size_t i = first; i < std::min(first + columns, voices.size()); ++i)
      cells.push_back(
          cell_of(voices[i], i == 0 ? base_colour : colours[(i - 1) % colours.size()], width));
    if (first > 0) lines.emplace_back();
    add_row(lines, cells, width, room);
  }
  return lines;
}

}  // namespace motley::cli
