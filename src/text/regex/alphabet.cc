#include "text/regex/alphabet.h"

#include <algorithm>
#include <string>
#include <unordered_map>

namespace motley::text::regex {
namespace {

constexpr char32_t code_points = 0x110000;

// The begin or the end of a set's range.
struct Border {
  char32_t at;
  std::uint32_t set;
};

}  // namespace

std::uint32_t SetList::number(const unicode::CodeSet& set) {
  const auto [place, fresh] = numbers_.try_emplace(set, static_cast<std::uint32_t>(sets_.size()));
  if (fresh) sets_.push_back(set);
  return place->second;
}

Alphabet::Alphabet(std::span<const unicode::CodeSet> sets) {
  std::vector<Border> borders;
  for (std::uint32_t set = 0; set < sets.size(); ++set) {
    for (const unicode::CodeRange& range : sets[set].ranges()) {
      borders.push_back({.at = range.first, .set = set});
      borders.push_back({.at = range.last + 1, .set = set});
    }
  }
  std::sort(borders.begin(), borders.end(),
            [](const Border& a, const Border& b) { return a.at < b.at; });

  // Ranges of characters with the sets that contain them; each distinct list of sets is a class.
  std::unordered_map<std::string, std::uint16_t> known;
  std::vector<std::string> kinds;
  std::string holding(sets.size(), '\0');
  blocks_.resize(code_points / block);
  auto border = borders.begin();
  for (char32_t from = 0; from < code_points;) {
    for (; border != borders.end() && border->at == from; ++border) holding[border->set] ^= 1;
    const char32_t to = border == borders.end() ? code_points : border->at;
    const auto [place, fresh] =
        known.try_emplace(holding, static_cast<std::uint16_t>(kinds.size()));
    if (fresh) kinds.push_back(holding);
    this->place(from, to - 1, place->second);
    from = to;
  }

  classes_ = static_cast<std::uint32_t>(kinds.size());
  members_.resize(sets.size() * classes_);
  for (std::size_t set = 0; set < sets.size(); ++set)
    for (std::size_t kind = 0; kind < kinds.size(); ++kind)
      members_[set * classes_ + kind] = static_cast<std::uint8_t>(kinds[kind][set]);
  for (char32_t c = 0; c < ascii_.size(); ++c) ascii_[c] = static_cast<std::uint16_t>(class_of(c));
}

void Alphabet::place(char32_t first, char32_t last, std::uint16_t its_class) {
  for (char32_t at = first; at <= last;) {
    const char32_t within = at % block;
    if (within == 0 && last - at >= block - 1) {
      if (uniform_.size() <= its_class) uniform_.resize(its_class + std::size_t{1});
      if (uniform_[its_class] == 0) {
        uniform_[its_class] = static_cast<std::uint32_t>(values_.size()) + 1;
        values_.insert(values_.end(), block, its_class);
      }
      blocks_[at / block] = uniform_[its_class] - 1;
      at += block;
      continue;
    }
    if (within == 0) {
      blocks_[at / block] = static_cast<std::uint32_t>(values_.size());
      values_.resize(values_.size() + block);
    }
    const char32_t end = std::min<char32_t>(last, at - within + block - 1);
    std::fill_n(values_.begin() + blocks_[at / block] + within, end - at + 1, its_class);
    at = end + 1;
  }
}

}  // namespace motley::text::regex
