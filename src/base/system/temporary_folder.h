#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "base/check.h"
#include "base/system/files.h"

namespace motley {

// For tests: a new empty folder, removed with its contents.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "motley-XXXXXX").string();
    MOTLEY_CHECK(::mkdtemp(name.data()) != nullptr, "a temporary folder can be made");
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

  // Writes a file of this name and returns its path.
  std::filesystem::path file(std::string_view name, std::string_view content) const {
    auto file = AtomicFile::create(path_ / name);
    file.value().write(content).value();
    file.value().commit().value();
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace motley
