#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/utf8.h"
#include "text/unicode/point_map.h"
#include "text/unicode/tables.h"
#include "text/unicode/unicode.h"

namespace motley::text::unicode {
namespace {

// Hangul syllables are computed: leading consonant x vowel x optional trailing consonant.
constexpr char32_t first_syllable = 0xAC00;
constexpr char32_t first_leading = 0x1100;
constexpr char32_t first_vowel = 0x1161;
constexpr char32_t before_trailing = 0x11A7;
constexpr std::uint32_t leading_count = 19;
constexpr std::uint32_t vowel_count = 21;
constexpr std::uint32_t trailing_count = 28;
constexpr std::uint32_t syllable_count = leading_count * vowel_count * trailing_count;

// Properties of a character for the quick check: its combining class in the low byte, and
constexpr std::uint16_t class_mask = 0xFF;
constexpr std::uint16_t decomposes = 1 << 8;  // canonically
constexpr std::uint16_t decomposes_compatibly = 1
                                                << 9;  // decomposes further in the compatible forms
constexpr std::uint16_t not_composed = 1 << 10;   // decomposes canonically and never recomposes
constexpr std::uint16_t composes_left = 1 << 11;  // may compose with a preceding character
constexpr std::uint16_t begins_inside = 1 << 12;  // its canonical decomposition begins with a mark
constexpr std::uint16_t begins_compatible = 1 << 13;  // the same for its compatible decomposition

struct NormalForms {
  PointMap<std::uint16_t> traits;
  std::unordered_map<char32_t, std::u32string> canonical;
  std::unordered_map<char32_t, std::u32string> compatible;
  std::unordered_map<std::uint64_t, char32_t> compositions;
};

std::uint64_t pair_key(char32_t first, char32_t second) {
  return std::uint64_t{first} << 32 | second;
}

std::unordered_map<char32_t, std::u32string> read_decompositions(std::string_view numbers) {
  std::unordered_map<char32_t, std::u32string> decompositions;
  tables::TableReader table(numbers);
  char32_t point = 0;
  for (std::uint32_t left = table.number(); left > 0; --left) {
    point += table.number();
    std::u32string text(table.number(), U'\0');
    for (char32_t& c : text) c = table.number();
    decompositions.emplace(point, std::move(text));
  }
  return decompositions;
}

void read_classes(std::vector<std::uint16_t>& traits) {
  tables::TableReader table(tables::combining_classes);
  for (std::uint32_t classes = table.number(); classes > 0; --classes) {
    const auto number = static_cast<std::uint16_t>(table.number());
    char32_t at = 0;
    for (std::uint32_t ranges = table.number(); ranges > 0; --ranges) {
      at += table.number();
      for (std::uint32_t left = table.number() + 1; left > 0; --left) traits[at++] = number;
    }
  }
}

void read_compositions(NormalForms& forms, std::vector<std::uint16_t>& traits) {
  for (const auto& [point, text] : forms.canonical) traits[point] |= decomposes | not_composed;
  tables::TableReader table(tables::compositions);
  char32_t first = 0;
  for (std::uint32_t left = table.number(); left > 0; --left) {
    first += table.number();
    const char32_t second = table.number();
    const char32_t composed = table.number();
    forms.compositions.emplace(pair_key(first, second), composed);
    traits[composed] &= static_cast<std::uint16_t>(~not_composed);
    traits[second] |= composes_left;
  }
}

NormalForms read_normal_forms() {
  NormalForms forms;
  forms.canonical = read_decompositions(tables::canonical_decompositions);
  forms.compatible = read_decompositions(tables::compatible_decompositions);
  std::vector<std::uint16_t> traits(code_points);
  read_classes(traits);
  read_compositions(forms, traits);
  for (std::uint32_t i = 0; i < syllable_count; ++i) traits[first_syllable + i] |= decomposes;
  for (std::uint32_t i = 0; i < vowel_count; ++i) traits[first_vowel + i] |= composes_left;
  for (std::uint32_t i = 1; i < trailing_count; ++i) traits[before_trailing + i] |= composes_left;
  const auto joins_left = [&](char32_t c) {
    return (traits[c] & (class_mask | composes_left)) != 0;
  };
  for (const auto& [point, text] : forms.canonical)
    if (joins_left(text[0])) traits[point] |= begins_inside | begins_compatible;
  for (const auto& [point, text] : forms.compatible) {
    traits[point] |= decomposes_compatibly;
    if (joins_left(text[0])) traits[point] |= begins_compatible;
  }
  forms.traits = PointMap<std::uint16_t>(traits);
  return forms;
}

const NormalForms& normal_forms() {
  static const NormalForms forms = read_normal_forms();
  return forms;
}

enum class Decomposition : std::uint8_t { canonical, compatible };

// A normal form, and the properties of characters that fail its quick check.
struct Form {
  Decomposition decomposition;
  bool compose;
  std::uint16_t changes;
  std::uint16_t begins;
  // Characters below are always in the form.
  unsigned char first_lead;
};

constexpr Form form_c{.decomposition = Decomposition::canonical,
                      .compose = true,
                      .changes = not_composed | composes_left,
                      .begins = begins_inside | composes_left,
                      .first_lead = 0xCC};
constexpr Form form_d{.decomposition = Decomposition::canonical,
                      .compose = false,
                      .changes = decomposes,
                      .begins = begins_inside,
                      .first_lead = 0xC3};
constexpr Form form_kc{.decomposition = Decomposition::compatible,
                       .compose = true,
                       .changes = not_composed | decomposes_compatibly | composes_left,
                       .begins = begins_compatible | composes_left,
                       .first_lead = 0xC2};
constexpr Form form_kd{.decomposition = Decomposition::compatible,
                       .compose = false,
                       .changes = decomposes | decomposes_compatibly,
                       .begins = begins_compatible,
                       .first_lead = 0xC2};

// The length of an ASCII prefix, in whole words.
std::size_t ascii_prefix(const char* at, const char* end) {
  const char* const begin = at;
  while (end - at >= 32) {
    std::array<std::uint64_t, 4> words{};
    std::memcpy(words.data(), at, sizeof(words));
    if (((words[0] | words[1] | words[2] | words[3]) & 0x8080808080808080U) != 0) break;
    at += sizeof(words);
  }
  while (at < end && static_cast<signed char>(*at) >= 0) ++at;
  return static_cast<std::size_t>(at - begin);
}

class Normalizer {
 public:
  Normalizer(const Form& form, std::string_view text)
      : forms_(normal_forms()), form_(form), text_(text) {}

  std::string run() {
    std::size_t kept = 0;  // everything before it has been written
    for (;;) {
      const std::size_t boundary = pass();
      if (at_ == text_.size()) break;
      // Normalises a part between two characters that do not interact with preceding ones.
      if (written_.empty()) written_.reserve(text_.size() + text_.size() / 8);
      written_ += text_.substr(kept, boundary - kept);
      kept = next_boundary();
      rewrite(text_.substr(boundary, kept - boundary));
      at_ = kept;
    }
    if (kept == 0) return std::string(text_);
    written_ += text_.substr(kept);
    return std::move(written_);
  }

 private:
  struct Piece {
    char32_t point;
    std::uint8_t combining_class;
    std::uint32_t order;  // among the pieces before they are sorted
  };

  // Moves at_ over characters that are in the form, and returns the last boundary before it; at_
  // may reach the end.
  std::size_t pass() {
    std::size_t boundary = at_;
    std::uint16_t last_class = 0;
    while (at_ < text_.size()) {
      const auto lead = static_cast<unsigned char>(text_[at_]);
      if (lead < 0x80) {
        at_ += ascii_prefix(text_.data() + at_, text_.data() + text_.size());
        boundary = at_ - 1;
        last_class = 0;
        continue;
      }
      if (lead < form_.first_lead) {
        boundary = at_;
        at_ += 2;
        last_class = 0;
        continue;
      }
      if (lead >= 0xE4 && lead <= 0xE9) {  // ideographs
        boundary = at_;
        at_ += 3;
        last_class = 0;
        continue;
      }
      const utf8::Decoded character = utf8::decode(text_.substr(at_));
      const std::uint16_t traits = forms_.traits[character.code_point];
      const std::uint16_t own_class = traits & class_mask;
      if ((traits & form_.changes) != 0 || (own_class != 0 && own_class < last_class)) {
        if (is_boundary(traits)) boundary = at_;
        return boundary;
      }
      if (is_boundary(traits)) boundary = at_;
      last_class = own_class;
      at_ += character.length;
    }
    return at_;
  }

  bool is_boundary(std::uint16_t traits) const {
    return (traits & (class_mask | form_.begins)) == 0;
  }

  // The first boundary after the character at at_.
  std::size_t next_boundary() const {
    std::size_t at = at_ + utf8::decode(text_.substr(at_)).length;
    while (at < text_.size()) {
      const utf8::Decoded character = utf8::decode(text_.substr(at));
      if (is_boundary(forms_.traits[character.code_point])) break;
      at += character.length;
    }
    return at;
  }

  void push(char32_t point) {
    pieces_.push_back(
        {.point = point,
         .combining_class = static_cast<std::uint8_t>(forms_.traits[point] & class_mask),
         .order = static_cast<std::uint32_t>(pieces_.size())});
  }

  void decompose(char32_t point) {
    if (const std::uint32_t syllable = point - first_syllable; syllable < syllable_count) {
      push(first_leading + syllable / (vowel_count * trailing_count));
      push(first_vowel + syllable / trailing_count % vowel_count);
      if (syllable % trailing_count != 0) push(before_trailing + syllable % trailing_count);
      return;
    }
    if (form_.decomposition == Decomposition::compatible) {
      if (const auto found = forms_.compatible.find(point); found != forms_.compatible.end()) {
        for (const char32_t c : found->second) push(c);
        return;
      }
    }
    const auto found = forms_.canonical.find(point);
    if (found == forms_.canonical.end()) return push(point);
    for (const char32_t c : found->second) push(c);
  }

  // Sorts each run of marks by class.
  void order() {
    const auto is_starter = [](const Piece& piece) { return piece.combining_class == 0; };
    for (auto begin = pieces_.begin(); begin != pieces_.end();) {
      begin = std::find_if_not(begin, pieces_.end(), is_starter);
      const auto end = std::find_if(begin, pieces_.end(), is_starter);
      std::sort(begin, end, [](const Piece& a, const Piece& b) {
        return std::tie(a.combining_class, a.order) < std::tie(b.combining_class, b.order);
      });
      begin = end;
    }
  }

  // The composition of two characters, or 0.
  char32_t composed(char32_t first, char32_t second) const {
    const std::uint32_t leading = first - first_leading;
    if (leading < leading_count) {
      const std::uint32_t vowel = second - first_vowel;
      if (vowel < vowel_count)
        return first_syllable + (leading * vowel_count + vowel) * trailing_count;
    }
    const std::uint32_t syllable = first - first_syllable;
    if (syllable < syllable_count && syllable % trailing_count == 0) {
      const std::uint32_t trailing = second - before_trailing;
      if (trailing > 0 && trailing < trailing_count) return first + trailing;
    }
    const auto found = forms_.compositions.find(pair_key(first, second));
    return found == forms_.compositions.end() ? 0 : found->second;
  }

  // Composes each character with the last starter, unless a character of the same class or a
  // starter is between them.
  void compose() {
    constexpr std::size_t none = ~std::size_t{0};
    std::size_t starter = none;
    std::size_t kept = 0;
    int between = -1;  // the class of the last character kept after the starter; -1: none
    for (const Piece piece : pieces_) {
      if (starter != none && between < static_cast<int>(piece.combining_class)) {
        if (const char32_t both = composed(pieces_[starter].point, piece.point); both != 0) {
          pieces_[starter].point = both;
          continue;
        }
      }
      if (piece.combining_class == 0) {
        starter = kept;
        between = -1;
      } else {
        between = piece.combining_class;
      }
      pieces_[kept++] = piece;
    }
    pieces_.resize(kept);
  }

  void rewrite(std::string_view part) {
    pieces_.clear();
    while (!part.empty()) {
      const utf8::Decoded character = utf8::decode(part);
      decompose(character.code_point);
      part.remove_prefix(character.length);
    }
    order();
    if (form_.compose) compose();
    for (const Piece& piece : pieces_) utf8::append(written_, piece.point);
  }

  const NormalForms& forms_;
  const Form& form_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::string written_;
  std::vector<Piece> pieces_;
};

}  // namespace

std::string nfc(std::string_view text) { return Normalizer(form_c, text).run(); }
std::string nfd(std::string_view text) { return Normalizer(form_d, text).run(); }
std::string nfkc(std::string_view text) { return Normalizer(form_kc, text).run(); }
std::string nfkd(std::string_view text) { return Normalizer(form_kd, text).run(); }

}  // namespace motley::text::unicode
