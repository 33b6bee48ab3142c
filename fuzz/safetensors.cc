// Reads the input as a whole safetensors file, and once more as a header's text behind a length
// field that fits it, so that the search gets past the field. What is accepted must keep the
// format's promises.

#include "tensor/safetensors/safetensors.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"

namespace {

using motley::tensor::SafetensorsEntry;

// Every tensor inside the file, side by side, named once, and found by its name.
void check(std::span<const std::byte> file) {
  const auto header = motley::tensor::parse_safetensors(file, "input");
  if (!header.ok()) {
    MOTLEY_CHECK(!header.error().message().empty(), "a refusal says why");
    return;
  }
  // Empty tensors take no place and may stand anywhere.
  std::vector<const SafetensorsEntry*> by_place;
  for (const SafetensorsEntry& entry : header->entries) {
    if (entry.begin < entry.end) by_place.push_back(&entry);
    MOTLEY_CHECK(header->find(entry.name) == &entry, "an entry is found by its name");
    MOTLEY_CHECK(entry.begin <= entry.end && entry.end <= file.size(), "a tensor inside the file");
    const auto bytes = motley::bytes_of(entry.dtype, entry.shape.elements());
    MOTLEY_CHECK(bytes && static_cast<std::size_t>(*bytes) == entry.end - entry.begin,
                 "a tensor as long as its shape says");
  }
  std::ranges::sort(by_place, {}, [](const auto* entry) {
    return std::pair(entry->begin, entry->end);  // an empty tensor before the one that follows it
  });
  for (std::size_t i = 1; i < by_place.size(); ++i) {
    MOTLEY_CHECK(by_place[i]->begin == by_place[i - 1]->end, "tensors side by side");
  }
  if (!by_place.empty()) MOTLEY_CHECK(by_place.back()->end == file.size(), "data to the end");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  check(input);
  if (input.empty()) return 0;
  // The first byte is how many bytes of data follow the header.
  const std::span<const std::byte> text = input.subspan(1);
  std::vector<std::byte> file(8);
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<std::byte>(text.size() >> (8 * i));
  file.insert(file.end(), text.begin(), text.end());
  file.resize(file.size() + std::to_integer<std::size_t>(input[0]));
  check(file);
  return 0;
}
