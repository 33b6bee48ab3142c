// Reads the input as the text of a safetensors header, and so of the metadata of an adapter that a
// client pushes. What is accepted has a configuration that a load accepts, and a checksum; what is
// refused gets a message of one line.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/system/unnamed_file.h"
#include "lora/files/config/config.h"
#include "lora/files/content.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  // The first byte is how many bytes of data follow the header.
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string file;
  for (std::size_t i = 0; i < 8; ++i) file += static_cast<char>(text.size() >> (8 * i));
  file += text;
  file.append(data[0], '\1');
  motley::UnnamedFile held = motley::UnnamedFile::create({}).value();
  held.write(file).value();
  const auto content =
      motley::lora::AdapterContent::of(std::move(held).map("body").value(), "pushed");
  if (!content.ok()) {
    const std::string message = content.error().message();
    MOTLEY_CHECK(!message.empty() && message == motley::printable(message), "one printable line");
    return 0;
  }
  MOTLEY_CHECK(motley::lora::parse_adapter_config((*content)->config(), "config").ok(),
               "a configuration that a load accepts");
  MOTLEY_CHECK((*content)->checksum().size() == 64, "a checksum");
  MOTLEY_CHECK((*content)->bytes() >= file.size(), "all of the file is held");
  return 0;
}
