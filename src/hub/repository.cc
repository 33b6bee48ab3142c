#include "hub/repository.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/ascii.h"
#include "base/cat.h"

namespace motley::hub {
namespace {

constexpr std::size_t longest_part = 96;
constexpr std::string_view form = "a repository is ORG/NAME or ORG/NAME@REV";
// What the hub holds beside models, as its addresses write it.
constexpr std::array<std::string_view, 4> other_kinds = {"datasets", "spaces", "kernels",
                                                         "buckets"};

Error wrong(std::string_view text, std::string what, std::string_view fix = form) {
  return {ErrorCode::invalid_argument, std::move(what), printable(text), std::string(fix)};
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t slash = text.find('/');
    parts.push_back(text.substr(0, slash));
    if (slash == std::string_view::npos) return parts;
    text.remove_prefix(slash + 1);
  }
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// Why an organisation or a name is none; empty if it is one. The rules are huggingface_hub's.
std::string fault_of_part(std::string_view part) {
  const auto has = [&](std::string_view piece) {
    return part.find(piece) != std::string_view::npos;
  };
  const auto is_allowed = [](char c) {
    return ascii::is_letter(c) || ascii::is_digit(c) || c == '-' || c == '_' || c == '.';
  };
  if (part.empty()) return "a part of the repository's name is empty";
  if (const auto bad = std::ranges::find_if_not(part, is_allowed); bad != part.end())
    return cat("a repository's name has letters, digits, '-', '_' and '.', not ",
               quote(std::string_view(bad, bad + 1)));
  if (part.size() > longest_part)
    return cat("a part of a repository's name has at most ", longest_part, " characters");
  for (const char c : {part.front(), part.back()}) {
    if (c == '-' || c == '.')
      return cat("a repository's name neither begins nor ends with '", c, "'");
  }
  if (has("--") || has("..")) return "a repository's name has no '--' and no '..'";
  if (part.ends_with(".git")) return "a repository's name does not end with .git";
  return {};
}

// Why a revision is none; empty if it is one. The rules are git's for references.
std::string fault_of_revision(std::string_view revision) {
  if (revision.empty()) return "no revision after the @";
  constexpr std::string_view refused = " ~^:?*[\\";
  for (const char c : revision) {
    if (is_control(c) || refused.find(c) != std::string_view::npos)
      return cat("a revision has no ", quote(std::string_view(&c, 1)));
  }
  if (revision.find("..") != std::string_view::npos) return "a revision has no '..'";
  for (const std::string_view part : split(revision)) {
    if (part.empty()) return "a part of the revision is empty";
    if (part.front() == '.') return "no part of a revision begins with '.'";
  }
  return {};
}

// In an address the slashes of a revision may be written as %2F.
std::string with_slashes(std::string_view revision) {
  std::string text(revision);
  for (const std::string_view coded : {"%2F", "%2f"}) {
    for (std::size_t at = text.find(coded); at != std::string::npos; at = text.find(coded))
      text.replace(at, coded.size(), "/");
  }
  return text;
}

Result<std::string> parse_id(std::string_view id, std::string_view text, bool address) {
  std::vector<std::string_view> parts = split(id);
  if (address && parts.size() > 2) {
    if (parts.front() == "models") parts.erase(parts.begin());
    if (std::ranges::find(other_kinds, parts.front()) != other_kinds.end())
      return wrong(text, cat("one of the hub's ", parts.front(), ", not a model or an adapter"));
  }
  for (const std::string_view part : parts) {
    if (std::string fault = fault_of_part(part); !fault.empty())
      return wrong(text, std::move(fault));
  }
  if (parts.size() > 2)
    return wrong(text, cat("a repository's name has two parts, not ", parts.size()),
                 address ? "name the repository alone, hf://ORG/NAME, not a folder in it" : form);
  if (parts.size() == 1 && !address)
    return wrong(text, "a repository's name begins with its organisation",
                 "write ORG/NAME, or hf://NAME if it has none");
  return join(parts, "/");
}

}  // namespace

Result<Repository> parse_repository(std::string_view text) {
  const bool address = text.starts_with(scheme);
  const std::string_view body = address ? text.substr(scheme.size()) : text;
  if (std::ranges::any_of(body, is_control))
    return wrong(text, "a repository's name has no control characters");
  if (body.empty()) return wrong(text, "no repository is named");
  const std::size_t at = body.find('@');
  Repository repository;
  MOTLEY_TRY(repository.id, parse_id(body.substr(0, at), text, address));
  if (at == std::string_view::npos) return repository;
  const std::string_view revision = body.substr(at + 1);
  repository.revision = address ? with_slashes(revision) : std::string(revision);
  if (std::string fault = fault_of_revision(repository.revision); !fault.empty())
    return wrong(text, std::move(fault), "write ORG/NAME@REV, or leave @REV out for main");
  return repository;
}

std::string to_string(const Repository& repository) {
  if (repository.revision == main_branch) return repository.id;
  return cat(repository.id, "@", repository.revision);
}

bool is_same_id(std::string_view one, std::string_view other) {
  return ascii::lower(one) == ascii::lower(other);
}

}  // namespace motley::hub
