// Runs a fuzz target without libFuzzer: every seed of a folder, then mutations of them that are the
// same in every run.
//   fuzz_replay NAME CORPUS CURRENT [RUNS [SEED]]
// CURRENT is a file that holds the input being tried, and is gone when all went well: if the target
// dies, it is the input that broke it.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz/replay_targets.h"

namespace {

namespace fs = std::filesystem;

using Input = std::vector<std::uint8_t>;

constexpr std::size_t longest_input = 4096;

std::vector<Input> read_seeds(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  // A folder lists its files in any order.
  std::sort(paths.begin(), paths.end());
  std::vector<Input> seeds;
  for (const fs::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

class Mutator {
 public:
  Mutator(const std::vector<Input>& seeds, std::uint64_t seed) : seeds_(seeds), random_(seed) {}

  Input next() {
    Input input = any_seed();
    for (std::size_t changes = 1 + below(6); changes > 0; --changes) change(input);
    if (input.size() > longest_input) input.resize(longest_input);
    return input;
  }

 private:
  // Modulo and not a distribution: those differ from one standard library to the next.
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  std::uint8_t byte() { return static_cast<std::uint8_t>(random_()); }
  const Input& any_seed() { return seeds_[below(seeds_.size())]; }
  static auto at(Input& input, std::size_t position) {
    return input.begin() + static_cast<std::ptrdiff_t>(position);
  }

  void change(Input& input) {
    const std::size_t position = below(input.size());
    const std::size_t length = 1 + below(std::min<std::size_t>(input.size() - position, 32));
    switch (below(8)) {
      case 0:
        if (!input.empty()) input[position] ^= static_cast<std::uint8_t>(1U << below(8));
        break;
      case 1:
        if (!input.empty()) input[position] = byte();
        break;
      case 2:
        for (std::size_t i = 1 + below(4); i > 0; --i) input.insert(at(input, position), byte());
        break;
      case 3:
        if (!input.empty()) input.erase(at(input, position), at(input, position + length));
        break;
      case 4:
        if (!input.empty()) repeat(input, position, length);
        break;
      case 5:
        splice(input, position);
        break;
      case 6:
        put_integer(input, position);
        break;
      default:
        put_digits(input, position);
    }
  }

  void repeat(Input& input, std::size_t position, std::size_t length) {
    if (position + length > input.size()) return;
    const Input piece(at(input, position), at(input, position + length));
    for (std::size_t times = 1 + below(8); times > 0; --times)
      input.insert(at(input, position), piece.begin(), piece.end());
  }

  // The beginning of this input and the end of another.
  void splice(Input& input, std::size_t position) {
    const Input& other = any_seed();
    input.resize(position);
    const auto from = static_cast<std::ptrdiff_t>(below(other.size()));
    input.insert(input.end(), other.begin() + from, other.end());
  }

  // A little-endian integer at which sizes and offsets overflow.
  void put_integer(Input& input, std::size_t position) {
    constexpr std::array<std::uint64_t, 14> interesting = {0,
                                                           1,
                                                           7,
                                                           8,
                                                           0x7F,
                                                           0xFF,
                                                           0x7FFF,
                                                           0xFFFF,
                                                           0x7FFFFFFF,
                                                           0x80000000,
                                                           0xFFFFFFFF,
                                                           0x7FFFFFFFFFFFFFFF,
                                                           0x8000000000000000,
                                                           0xFFFFFFFFFFFFFFFF};
    const std::uint64_t value = interesting[below(interesting.size())];
    const std::size_t width = std::size_t{1} << below(4);
    for (std::size_t i = 0; i < width && position + i < input.size(); ++i)
      input[position + i] = static_cast<std::uint8_t>(value >> (8 * i));
  }

  // The same as text.
  void put_digits(Input& input, std::size_t position) {
    constexpr std::array<const char*, 10> interesting = {"0",
                                                         "-1",
                                                         "9223372036854775807",
                                                         "9223372036854775808",
                                                         "18446744073709551615",
                                                         "4294967296",
                                                         "1e9",
                                                         "1e999",
                                                         "-0.0",
                                                         "0.1"};
    const std::string text = interesting[below(interesting.size())];
    input.insert(at(input, position), text.begin(), text.end());
  }

  const std::vector<Input>& seeds_;
  std::mt19937_64 random_;
};

class Runner {
 public:
  Runner(motley::fuzz::Target target, fs::path current)
      : target_(target), current_(std::move(current)) {}

  void run(const Input& input) {
    {
      std::ofstream file(current_, std::ios::binary | std::ios::trunc);
      file.write(reinterpret_cast<const char*>(input.data()),
                 static_cast<std::streamsize>(input.size()));
      if (!file.flush()) {
        std::fprintf(stderr, "can't write %s\n", current_.c_str());
        std::exit(2);
      }
    }
    target_(input.data(), input.size());
    ++runs_;
  }

  int runs() const { return runs_; }

 private:
  motley::fuzz::Target target_;
  fs::path current_;
  int runs_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::fprintf(stderr, "usage: %s NAME CORPUS CURRENT [RUNS [SEED]]\n", arguments[0]);
    return 2;
  }
  const motley::fuzz::Target target = motley::fuzz::find_target(arguments[1]);
  if (target == nullptr) {
    std::fprintf(stderr, "no fuzz target '%s'\n", arguments[1]);
    return 2;
  }
  const int mutations = count > 4 ? std::atoi(arguments[4]) : 4000;
  const std::vector<Input> seeds = read_seeds(arguments[2]);
  if (seeds.empty()) {
    std::fprintf(stderr, "no seeds in %s\n", arguments[2]);
    return 2;
  }
  std::fprintf(stderr, "if this dies, %s holds the input that broke it\n", arguments[3]);
  Runner runner(target, arguments[3]);
  runner.run({});
  for (const Input& seed : seeds) runner.run(seed);
  Mutator mutator(seeds, count > 5 ? std::strtoull(arguments[5], nullptr, 10) : 1);
  for (int i = 0; i < mutations; ++i) runner.run(mutator.next());
  fs::remove(arguments[3]);
  std::printf("%d inputs\n", runner.runs());
  return 0;
}
