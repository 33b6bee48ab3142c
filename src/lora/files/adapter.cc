#include "lora/files/adapter.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/system/parallel.h"
#include "tensor/convert.h"

namespace motley::lora {

namespace {

constexpr std::uint64_t low_begin = 0x243F6A8885A308D3U;
constexpr std::uint64_t high_begin = 0x13198A2E03707344U;

// A 64-bit word whose bits each depend on all bits of x.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 32)) * 0xE9846AF9B1A615DU;
  x = (x ^ (x >> 29)) * 0xE9846AF9B1A615DU;
  return x ^ (x >> 31);
}

// Two halves of multiply, rotate and xor over 64-bit words, and a final mix of all bits. Detects
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
  void add(ContentVersion version) {
    add(version.high);
    add(version.low);
  }

  ContentVersion done() const {
    return {mixed(high_ + 3 * mixed(words_ ^ low_)), mixed(low_ ^ mixed(high_ + words_))};
  }

 private:
  std::uint64_t low_ = low_begin;
  std::uint64_t high_ = high_begin;
  std::uint64_t words_ = 0;
};

// Many numbers as float32, two in a word. Words go to the lanes in turn, because a lane's next step
// waits for its last; each step maps different words to different states.
class NumbersHasher {
 public:
  static constexpr std::size_t lanes = 4;
  // All but the last call must add a multiple of this.
  static constexpr std::size_t together = 2 * lanes;

  NumbersHasher() {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      low_[lane] = low_begin + lane;
      high_[lane] = high_begin + lane;
    }
  }

  void add(std::span<const float> numbers) {
    for (; numbers.size() >= together; numbers = numbers.subspan(together)) add_all(numbers.data());
    if (numbers.empty()) return;
    std::array<float, together> last{};
    std::ranges::copy(numbers, last.begin());
    add_all(last.data());
  }

  void add_to(Hasher& hasher) const {
    for (std::size_t lane = 0; lane < lanes; ++lane)
      hasher.add(ContentVersion{high_[lane], low_[lane]});
  }

 private:
  void add_all(const float* numbers) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      std::uint64_t word = 0;
      std::memcpy(&word, numbers + 2 * lane, sizeof word);
      low_[lane] = std::rotl(low_[lane] ^ word, 27) * 0xD6E8FEB86659FD93U;
      high_[lane] = std::rotl(high_[lane] + word, 31) * 0xA0761D6478BD642FU;
    }
  }

  std::array<std::uint64_t, lanes> low_{};
  std::array<std::uint64_t, lanes> high_{};
};

bool all_finite(std::span<const float> numbers) {
  constexpr std::uint32_t exponent = 0x7F800000;
  std::uint32_t wrong = 0;
  for (const float number : numbers)
    wrong |= (std::bit_cast<std::uint32_t>(number) & exponent) == exponent ? 1U : 0U;
  return wrong == 0;
}

struct MatrixHash {
  ContentVersion version;
  bool finite = true;  // what is stored
};

MatrixHash hash_of(const Matrix& matrix) {
  std::array<float, 1024> widened{};
  static_assert(widened.size() % NumbersHasher::together == 0);
  NumbersHasher numbers;
  MatrixHash hash;
  if (matrix.stored == nullptr) numbers.add(matrix.values);
  const std::int64_t stored = matrix.stored == nullptr ? 0 : matrix.size();
  for (std::int64_t first = 0; first < stored; first += std::ssize(widened)) {
    const auto count = std::min<std::int64_t>(std::ssize(widened), stored - first);
    const auto chunk = std::span(widened).first(static_cast<std::size_t>(count));
    matrix.read(first, chunk);
    numbers.add(chunk);
    hash.finite = hash.finite && all_finite(chunk);
  }
  Hasher hasher;
  hasher.add(matrix.rows);
  hasher.add(matrix.columns);
  numbers.add_to(hasher);
  hash.version = hasher.done();
  return hash;
}

std::vector<MatrixHash> hash_matrices(const Adapter& adapter) {
  std::uint64_t bytes = 0;
  for (const Matrix& matrix : adapter.matrices) bytes += matrix.bytes();
  std::vector<MatrixHash> hashes(adapter.matrices.size());
  for_each_index(hashes.size(), bytes,
                 [&](std::size_t i) { hashes[i] = hash_of(adapter.matrices[i]); });
  return hashes;
}

ContentVersion version_of(const Adapter& adapter, std::span<const MatrixHash> matrices) {
  Hasher hasher;
  const auto add_place = [&](int place) {
    if (place < 0) {
      hasher.add(std::int64_t{-1});
    } else {
      hasher.add(matrices[static_cast<std::size_t>(place)].version);
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

}  // namespace

std::uint64_t Matrix::bytes() const {
  if (stored == nullptr) return std::span(values).size_bytes();
  return static_cast<std::uint64_t>(bytes_of(dtype, size()).value());
}

void Matrix::read(std::int64_t first, std::span<float> to) const {
  if (stored == nullptr) {
    std::copy_n(values.begin() + first, to.size(), to.begin());
  } else {
    tensor::widen(dtype, stored, first, to);
  }
}

float Matrix::at(std::int64_t row, std::int64_t column) const {
  float number = 0;
  read(row * columns + column, {&number, 1});
  return number;
}

std::vector<float> Matrix::numbers() const {
  std::vector<float> all(static_cast<std::size_t>(size()));
  read(0, all);
  return all;
}

Matrix Matrix::rows_between(std::int64_t begin, std::int64_t end) const {
  Matrix part{.rows = end - begin, .columns = columns};
  if (stored == nullptr) {
    part.values.assign(row(begin), row(end));
  } else {
    part.stored = stored + bytes_of(dtype, begin * columns).value();
    part.dtype = dtype;
  }
  return part;
}

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
  return version_of(adapter, hash_matrices(adapter));
}

std::optional<ContentVersion> hash_finite_content(const Adapter& adapter) {
  const std::vector<MatrixHash> hashes = hash_matrices(adapter);
  if (!std::ranges::all_of(hashes, &MatrixHash::finite)) return std::nullopt;
  return version_of(adapter, hashes);
}

}  // namespace motley::lora
