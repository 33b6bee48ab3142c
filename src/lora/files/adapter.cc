#include "lora/files/adapter.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace motley::lora {

namespace {

// Two lanes of multiply, rotate and xor over 64-bit words, and a final mix of all bits. Detects
// accidental differences only; an attacker who can write an adapter can serve it, too.
class Hasher {
 public:
  void add(std::uint64_t word) {
    low_ = std::rotl(low_ ^ (word * 0x9E3779B97F4A7C15U), 27) * 0xD6E8FEB86659FD93U + 0x2545F491U;
    high_ = std::rotl(high_ + (word ^ low_), 31) * 0xA0761D6478BD642FU ^ word;
    ++words_;
  }
  void add(std::int64_t number) { add(static_cast<std::uint64_t>(number)); }
  void add(float number) { add(std::uint64_t{std::bit_cast<std::uint32_t>(number)}); }
  void add(const std::vector<float>& numbers) {
    std::size_t i = 0;
    for (; i + 2 <= numbers.size(); i += 2) {
      std::uint64_t word = 0;
      std::memcpy(&word, numbers.data() + i, sizeof word);
      add(word);
    }
    if (i < numbers.size()) add(numbers[i]);
  }
  void add(ContentVersion version) {
    add(version.high);
    add(version.low);
  }

  ContentVersion done() const {
    return {mixed(high_ + 3 * mixed(words_ ^ low_)), mixed(low_ ^ mixed(high_ + words_))};
  }

 private:
  static std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ (x >> 32)) * 0xE9846AF9B1A615DU;
    x = (x ^ (x >> 29)) * 0xE9846AF9B1A615DU;
    return x ^ (x >> 31);
  }

  std::uint64_t low_ = 0x243F6A8885A308D3U;
  std::uint64_t high_ = 0x13198A2E03707344U;
  std::uint64_t words_ = 0;
};

}  // namespace

std::string to_string(ContentVersion version) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::uint64_t half : {version.high, version.low}) {
    for (int shift = 60; shift >= 0; shift -= 4) text += digits[(half >> shift) & 15U];
  }
  return text;
}

std::string_view name(Convention convention) {
  switch (convention) {
    case Convention::none:
      return "none";
    case Convention::per_expert:
      return "per-expert";
    case Convention::packed:
      return "packed";
    case Convention::linears:
      return "linears";
    case Convention::shared_outer:
      return "shared-outer";
  }
  MOTLEY_CHECK(false, "a Convention without a name");
}

const SiteDelta* Adapter::find(Site site) const {
  const auto found = std::ranges::lower_bound(sites, site, {}, &SiteDelta::site);
  return found == sites.end() || found->site != site ? nullptr : &*found;
}

std::string_view exclusive_reason(const Adapter& adapter) {
  for (const SiteDelta& delta : adapter.sites) {
    if (delta.gain >= 0) return "it scales the base's outputs (DoRA)";
    if (delta.replaced >= 0) return "it replaces weights of the base";
    if (delta.replaced_bias >= 0) return "it replaces biases of the base";
  }
  return {};
}

ContentVersion hash_content(const Adapter& adapter) {
  std::vector<ContentVersion> matrices;
  matrices.reserve(adapter.matrices.size());
  for (const Matrix& matrix : adapter.matrices) {
    Hasher hasher;
    hasher.add(matrix.rows);
    hasher.add(matrix.columns);
    hasher.add(matrix.values);
    matrices.push_back(hasher.done());
  }
  Hasher hasher;
  const auto add_place = [&](int place) {
    if (place < 0) {
      hasher.add(std::int64_t{-1});
    } else {
      hasher.add(matrices[static_cast<std::size_t>(place)]);
    }
  };
  for (const SiteDelta& delta : adapter.sites) {
    hasher.add(std::int64_t{delta.site.layer});
    hasher.add(static_cast<std::int64_t>(delta.site.projection));
    for (const Factors& factors : delta.factors) {
      hasher.add(std::int64_t{factors.rank});
      if (!factors.present()) continue;
      hasher.add(factors.scale);
      add_place(factors.a);
      add_place(factors.b);
    }
    for (const int place : {delta.lora_bias, delta.gain, delta.replaced, delta.replaced_bias})
      add_place(place);
  }
  return hasher.done();
}

}  // namespace motley::lora
