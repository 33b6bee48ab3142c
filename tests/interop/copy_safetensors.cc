// Reads a safetensors file and writes its tensors and metadata into another: copy_safetensors FROM
// TO

#include <cstdio>
#include <vector>

#include "tensor/safetensors/safetensors.h"

int main(int argc, char** argv) {
  using motley::tensor::NamedTensor;
  using motley::tensor::SafetensorsFile;
  if (argc != 3) return 2;
  const auto from = SafetensorsFile::open(argv[1]);
  if (!from.ok()) {
    std::fprintf(stderr, "%s\n", from.error().message().c_str());
    return 1;
  }
  std::vector<NamedTensor> tensors;
  for (const auto& entry : from->header().entries)
    tensors.push_back({entry.name, from->tensor(entry)});
  const auto written = motley::tensor::write_safetensors(argv[2], tensors, from->header().metadata);
  if (written.ok()) return 0;
  std::fprintf(stderr, "%s\n", written.error().message().c_str());
  return 1;
}
