// Reads the input as a file of options. What is accepted has unique keys that are names; what is
// refused gets a message of one line that names the file.

#include "cli/options/arguments/config_file.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "base/cat.h"
#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto options = motley::cli::parse_config(text, "server.yaml");
  if (!options.ok()) {
    const std::string message = options.error().message();
    MOTLEY_CHECK(message == motley::printable(message), "one printable line");
    MOTLEY_CHECK(message.find("server.yaml") != std::string::npos, "a refusal names the file");
    return 0;
  }
  std::set<std::string> keys;
  for (const motley::cli::FileOption& option : *options) {
    MOTLEY_CHECK(!option.key.empty() && option.key.front() != '-', "a name");
    MOTLEY_CHECK(keys.insert(option.key).second, "each key once");
    MOTLEY_CHECK(option.where.starts_with("server.yaml"), "a place");
  }
  return 0;
}
