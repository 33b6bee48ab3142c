#include <algorithm>

#include "base/cat.h"
#include "base/json/json.h"
#include "tensor/safetensors/safetensors.h"

namespace motley::tensor {
namespace {

// The data begins at a multiple of this: the widest element's size.
constexpr std::size_t header_alignment = 8;

// Widest elements first: then every tensor ends where the next, narrower one may begin.
std::vector<const NamedTensor*> in_file_order(std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> order;
  order.reserve(tensors.size());
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::ranges::sort(order, [](const NamedTensor* a, const NamedTensor* b) {
    const int a_bits = bits(a->tensor.dtype());
    const int b_bits = bits(b->tensor.dtype());
    return a_bits != b_bits ? a_bits > b_bits : a->name < b->name;
  });
  return order;
}

std::string header_of(std::span<const NamedTensor* const> order,
                      const std::map<std::string, std::string>& metadata) {
  json::Object header;
  if (!metadata.empty()) {
    json::Object pairs;
    for (const auto& [key, value] : metadata) pairs.add(key, value);
    header.add("__metadata__", std::move(pairs));
  }
  std::int64_t begin = 0;
  for (const NamedTensor* named : order) {
    const ConstTensor& tensor = named->tensor;
    MOTLEY_CHECK(tensor.is_contiguous() && tensor.device().kind == DeviceKind::cpu,
                 "a file is written from contiguous memory of the host");
    const std::int64_t end = begin + tensor.byte_count();
    json::Array dims;
    for (const std::int64_t length : tensor.shape().dims()) dims.emplace_back(length);
    json::Object entry{{"dtype", name(tensor.dtype())},
                       {"shape", std::move(dims)},
                       {"data_offsets", json::Array{begin, end}}};
    header.add(named->name, std::move(entry));
    begin = end;
  }
  std::string text = json::write(std::move(header));
  text.resize((text.size() + header_alignment - 1) / header_alignment * header_alignment, ' ');
  return text;
}

}  // namespace

Result<void> check_names(std::span<const NamedTensor> tensors, std::string_view where) {
  std::vector<std::string_view> names;
  for (const NamedTensor& tensor : tensors) names.push_back(tensor.name);
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end())
    return Error(ErrorCode::invalid_argument, cat("tensor ", quote(*twice), " twice"),
                 std::string(where), "give every tensor a name of its own");
  if (std::ranges::binary_search(names, "__metadata__"))
    return Error(ErrorCode::invalid_argument, "a tensor named __metadata__", std::string(where),
                 "the format keeps that name for itself");
  return {};
}

Result<void> write_safetensors(const std::filesystem::path& path,
                               std::span<const NamedTensor> tensors,
                               const std::map<std::string, std::string>& metadata) {
  MOTLEY_TRY_VOID(check_names(tensors, printable(path.string())));
  const std::vector<const NamedTensor*> order = in_file_order(tensors);
  const std::string header = header_of(order, metadata);
  std::array<std::byte, 8> length{};
  for (std::size_t i = 0; i < length.size(); ++i)
    length[i] = static_cast<std::byte>(header.size() >> (8 * i));

  MOTLEY_TRY(AtomicFile file, AtomicFile::create(path));
  MOTLEY_TRY_VOID(file.write(length));
  MOTLEY_TRY_VOID(file.write(header));
  for (const NamedTensor* named : order) {
    const ConstTensor& tensor = named->tensor;
    MOTLEY_TRY_VOID(file.write({tensor.bytes(), static_cast<std::size_t>(tensor.byte_count())}));
  }
  return file.commit();
}

}  // namespace motley::tensor
