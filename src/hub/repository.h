#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace motley::hub {

inline constexpr std::string_view scheme = "hf://";
inline constexpr std::string_view main_branch = "main";

// A repository of models on the Hugging Face hub, and a revision of it.
struct Repository {
  std::string id;  // "ORG/NAME"; a few old ones are "NAME"
  // A branch, a tag, a reference such as refs/pr/1, or a commit.
  std::string revision = std::string(main_branch);

  bool operator==(const Repository&) const = default;
};

// "ORG/NAME" or "ORG/NAME@REV"; with hf:// in front also "NAME" and "models/ORG/NAME". The error
// says what is wrong with the text. A name that is accepted is a safe path below a cache's folder.
Result<Repository> parse_repository(std::string_view text);

// "ORG/NAME", or "ORG/NAME@REV" where the revision is not the branch main.
std::string to_string(const Repository& repository);

// Whether two names mean one repository: the hub ignores case.
bool is_same_id(std::string_view one, std::string_view other);

}  // namespace motley::hub
