// Reads the input as a checkpoint's index. What is accepted names files of its own folder only, and
// says the same when it is written and read again.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/json/json.h"
#include "tensor/safetensors/checkpoint.h"

namespace json = motley::json;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto files = motley::tensor::parse_index(text, "input");
  if (!files.ok()) {
    const std::string message = files.error().message();
    MOTLEY_CHECK(!message.empty() && message == motley::printable(message), "one printable line");
    MOTLEY_CHECK(files.error().code() == motley::ErrorCode::bad_file, "the file is to blame");
    return 0;
  }
  MOTLEY_CHECK(!files->empty(), "an index lists something");
  json::Object map;
  for (const auto& [tensor, file] : *files) {
    const std::filesystem::path path = file;
    MOTLEY_CHECK(path.filename() == path && file.ends_with(".safetensors"),
                 "a file of the same folder");
    map.add(tensor, file);
  }
  json::Object index;
  index.add("weight_map", std::move(map));
  const auto again = motley::tensor::parse_index(json::write(std::move(index)), "the same");
  MOTLEY_CHECK(again.ok() && *again == *files, "the same when read again");
  return 0;
}
