#include "cli/options/arguments/environment.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <pwd.h>
#include <unistd.h>
#include <vector>

#include "base/ascii.h"
#include "base/cat.h"

namespace motley::cli {
namespace {

// "~/x" and "~user/x", as Python's expanduser(); other text, and unknown users, are left as they
// are.
std::string expand_home(const std::string& path, Variables variables, Homes homes) {
  if (!path.starts_with('~')) return path;
  const std::size_t end = std::min(path.find('/'), path.size());
  const std::string_view user = std::string_view(path).substr(1, end - 1);
  std::optional<std::string> home;
  if (user.empty()) home = variables("HOME");
  if (!home) home = homes(user);
  if (!home) return path;
  while (home->ends_with('/')) home->pop_back();
  std::string whole = *home + path.substr(end);
  return whole.empty() ? "/" : whole;
}

bool is_word(char c) { return ascii::is_letter(c) || ascii::is_digit(c) || c == '_'; }

// "$NAME" and "${NAME}", as Python's expandvars(): variables that are not set are left as they are,
// and values are not expanded again.
std::string expand_variables(std::string_view text, Variables variables) {
  std::string expanded;
  while (true) {
    const std::size_t dollar = text.find('$');
    expanded += text.substr(0, dollar);
    if (dollar == std::string_view::npos) return expanded;
    text.remove_prefix(dollar);
    std::size_t size = 1;
    std::string_view name;
    if (text.starts_with("${")) {
      const std::size_t close = text.find('}');
      if (close != std::string_view::npos) {
        name = text.substr(2, close - 2);
        size = close + 1;
      }
    } else {
      while (size < text.size() && is_word(text[size])) ++size;
      name = text.substr(1, size - 1);
    }
    std::optional<std::string> value;
    if (!name.empty()) value = variables(name);
    expanded += value ? *value : std::string(text.substr(0, size));
    text.remove_prefix(size);
  }
}

bool is_true(std::string_view value) {
  constexpr std::array<std::string_view, 4> words = {"1", "on", "yes", "true"};
  return std::ranges::find(words, ascii::lower(value)) != words.end();
}

// An empty value counts as one, as it does there: "" is then the current folder.
std::string hub_cache(Variables variables, Homes homes) {
  const auto expanded = [&](const std::string& path) {
    return expand_variables(expand_home(path, variables, homes), variables);
  };
  // os.path.join(): a name is set apart by one slash, and nothing stands before the first.
  const auto join_path = [](const std::string& folder, std::string_view name) {
    return folder.empty() || folder.ends_with('/') ? cat(folder, name) : cat(folder, "/", name);
  };
  for (const char* const name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const auto cache = variables(name)) return expanded(*cache);
  }
  const auto given = variables("HF_HOME");
  const std::string home =
      given ? *given : join_path(variables("XDG_CACHE_HOME").value_or("~/.cache"), "huggingface");
  return join_path(expanded(home), "hub");
}

std::optional<std::string> variable(std::string_view name) {
  const char* const value = std::getenv(std::string(name).c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

std::optional<std::string> home_folder(std::string_view user) {
  std::vector<char> text(std::size_t{1} << 14);
  passwd entry{};
  passwd* found = nullptr;
  if (user.empty())
    ::getpwuid_r(::getuid(), &entry, text.data(), text.size(), &found);
  else
    ::getpwnam_r(std::string(user).c_str(), &entry, text.data(), text.size(), &found);
  if (found == nullptr || found->pw_dir == nullptr) return std::nullopt;
  return found->pw_dir;
}

}  // namespace

Environment read_environment(Variables variables, Homes homes) {
  std::string cache = hub_cache(variables, homes);
  if (cache.empty()) cache = ".";
  std::string offline = variables("HF_HUB_OFFLINE").value_or("");
  if (offline.empty()) offline = variables("TRANSFORMERS_OFFLINE").value_or("");
  return {.hub = {.folder = std::move(cache), .offline = is_true(offline)}};
}

Environment read_environment() {
  return read_environment([](std::string_view name) { return variable(name); },
                          [](std::string_view user) { return home_folder(user); });
}

}  // namespace motley::cli
