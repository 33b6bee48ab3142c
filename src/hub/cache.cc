#include "hub/cache.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "base/cat.h"
#include "base/system/files.h"

namespace motley::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_reference = 4096;
constexpr std::size_t commit_digits = 40;
constexpr std::string_view folder_prefix = "models--";
constexpr std::string_view separator = "--";
constexpr std::string_view snapshots = "snapshots";

// "ORG/NAME" -> "models--ORG--NAME"
std::string folder_of(std::string_view id) {
  std::string name = cat(folder_prefix, id);
  if (const std::size_t slash = name.find('/'); slash != std::string::npos)
    name.replace(slash, 1, separator);
  return name;
}

// "models--ORG--NAME" -> "ORG/NAME"; empty for other names.
std::string id_of(std::string_view folder) {
  if (!folder.starts_with(folder_prefix)) return {};
  std::string id(folder.substr(folder_prefix.size()));
  if (const std::size_t dashes = id.find(separator); dashes != std::string::npos)
    id.replace(dashes, separator.size(), "/");
  return id;
}

bool is_folder(const fs::path& path) {
  const auto kind = path_kind(path);
  return kind.ok() && *kind == PathKind::folder;
}

bool is_commit(std::string_view revision) {
  return revision.size() == commit_digits && std::ranges::all_of(revision, [](char c) {
           return ascii::is_digit(c) || (c >= 'a' && c <= 'f');
         });
}

// A path's own name where it ends with a slash or "." too.
fs::path plain(const fs::path& path) {
  std::error_code failure;
  fs::path whole = fs::absolute(path, failure).lexically_normal();
  if (failure) return path;
  return whole.has_filename() ? whole : whole.parent_path();
}

// The same without links; the path itself where it can't be followed.
fs::path followed(const fs::path& path) {
  std::error_code failure;
  fs::path whole = fs::canonical(path, failure);
  return failure ? path : whole;
}

// A file of refs/ holds a commit. Anything else could lead out of snapshots/.
Result<std::optional<std::string>> read_reference(const fs::path& file) {
  MOTLEY_TRY(const PathKind kind, path_kind(file));
  if (kind != PathKind::file) return std::optional<std::string>();
  MOTLEY_TRY(const std::string text, read_text(file, longest_reference));
  std::string commit = text.substr(0, text.find_first_of("\r\n "));
  const auto is_plain = [](char c) { return ascii::is_letter(c) || ascii::is_digit(c); };
  if (commit.empty() || !std::ranges::all_of(commit, is_plain))
    return Error(ErrorCode::bad_file, "a reference that names no commit", printable(file.native()),
                 "remove the file, and download the revision again");
  return std::optional(std::move(commit));
}

// The names of refs/, with a slash where they are in folders: "main", "refs/pr/1".
std::vector<std::string> references_in(const fs::path& repository) {
  const fs::path root = repository / "refs";
  std::vector<std::string> names;
  std::error_code failure;
  for (fs::recursive_directory_iterator at(root, failure), end; !failure && at != end;
       at.increment(failure)) {
    if (is_folder(at->path())) continue;
    names.push_back(at->path().lexically_relative(root).native());
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> commits_in(const fs::path& repository) {
  auto names = list_folder(repository / snapshots);
  return names.ok() ? *std::move(names) : std::vector<std::string>();
}

// The revisions of a repository that its cache has: references whose snapshot is there, and the
// commits that no reference names.
std::vector<std::string> revisions_in(const fs::path& repository) {
  std::vector<std::string> commits = commits_in(repository);
  std::vector<std::string> found;
  std::vector<std::string> named;
  for (const std::string& name : references_in(repository)) {
    const auto commit = read_reference(repository / "refs" / name);
    if (!commit.ok() || !*commit || std::ranges::find(commits, **commit) == commits.end()) continue;
    found.push_back(name);
    named.push_back(**commit);
  }
  for (std::string& commit : commits) {
    if (std::ranges::find(named, commit) == named.end()) found.push_back(std::move(commit));
  }
  return found;
}

std::string in_words(const Repository& repository, const std::vector<std::string>& revisions) {
  constexpr std::size_t most = 6;
  std::vector<std::string> names;
  for (const std::string& revision : revisions) {
    if (names.size() == most) break;
    names.push_back(cat(repository.id, "@", revision));
  }
  std::string text = printable(join(names));
  if (revisions.size() > most) text += cat(" and ", revisions.size() - most, " more");
  return text;
}

// The only commit that begins with these digits; empty if there is none, or there are several.
std::string whole_commit(const fs::path& repository, std::string_view digits) {
  constexpr std::size_t least = 4;
  if (digits.size() < least) return {};
  std::string found;
  for (const std::string& commit : commits_in(repository)) {
    if (!commit.starts_with(digits)) continue;
    if (!found.empty()) return {};
    found = commit;
  }
  return found;
}

// A word of a command line.
std::string shell_word(std::string_view text) {
  const auto is_plain = [](char c) {
    constexpr std::string_view others = "._-/@+=:,";
    return ascii::is_letter(c) || ascii::is_digit(c) || others.find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return printable(word + "'");
}

Snapshot wanted(const Cache& cache, const Repository& repository) {
  return {.folder = {}, .repository = repository, .cache = cache.folder};
}

Error no_revision(const Cache& cache, const Repository& repository, const fs::path& folder) {
  const std::string fetch = download_command(cache, wanted(cache, repository));
  const std::string what =
      cat(repository.id, " is in the Hugging Face cache, but not its revision ",
          quote(repository.revision));
  const std::string commit = whole_commit(folder, repository.revision);
  const std::vector<std::string> others = revisions_in(folder);
  std::string fix = cat("fetch it: ", fetch);
  if (!commit.empty())
    fix = cat("write the whole commit: ", repository.id, "@", printable(commit));
  else if (!others.empty())
    fix += cat("; or name one that is there: ", in_words(repository, others));
  return {ErrorCode::not_found, what, printable(folder.native()), std::move(fix)};
}

Result<std::optional<fs::path>> existing(fs::path folder) {
  MOTLEY_TRY(const PathKind kind, path_kind(folder));
  if (kind != PathKind::folder) return std::optional<fs::path>();
  return std::optional(std::move(folder));
}

// The folder of a revision; nothing if it is not there.
Result<std::optional<fs::path>> folder_of_revision(const fs::path& repository,
                                                   std::string_view revision) {
  const fs::path all = repository / snapshots;
  // A whole commit needs no reference; huggingface_hub writes none where one is asked for.
  if (is_commit(revision)) return existing(all / revision);
  MOTLEY_TRY(const auto commit, read_reference(repository / "refs" / revision));
  if (commit) return existing(all / *commit);
  return std::optional<fs::path>();
}

}  // namespace

bool holds(const Cache& cache, const std::string& id) {
  return !cache.folder.empty() && is_folder(cache.folder / folder_of(id) / snapshots);
}

Result<Snapshot> find_snapshot(const Cache& cache, const Repository& repository) {
  const fs::path folder = cache.folder / folder_of(repository.id);
  MOTLEY_TRY(const PathKind kind, path_kind(folder));
  if (cache.folder.empty() || kind != PathKind::folder)
    return Error(ErrorCode::not_found, cat(repository.id, " is not in the Hugging Face cache"),
                 printable(cache.folder.native()),
                 cat("fetch it: ", download_command(cache, wanted(cache, repository))));
  MOTLEY_TRY(auto found, folder_of_revision(folder, repository.revision));
  if (!found) return no_revision(cache, repository, folder);
  return Snapshot{.folder = *std::move(found), .repository = repository, .cache = cache.folder};
}

Result<std::optional<Snapshot>> snapshot_of_folder(const fs::path& folder, const Cache& cache) {
  fs::path repository = plain(folder);
  std::string id = id_of(repository.filename().native());
  if (id.empty()) {
    repository = followed(folder);
    id = id_of(repository.filename().native());
  }
  if (id.empty() || !is_folder(repository / snapshots)) return std::optional<Snapshot>();
  Snapshot snapshot{
      .folder = {}, .repository = {.id = std::move(id)}, .cache = repository.parent_path()};
  MOTLEY_TRY(auto found, folder_of_revision(repository, main_branch));
  if (!found) {
    const std::vector<std::string> commits = commits_in(repository);
    if (commits.size() != 1) {
      const std::string fetch = download_command(cache, snapshot);
      return Error(ErrorCode::bad_file,
                   cat("a cache of ", printable(snapshot.repository.id),
                       " without the snapshot of its branch main"),
                   printable(folder.native()),
                   commits.empty() ? cat("fetch it: ", fetch)
                                   : cat("name one of snapshots/: ", printable(join(commits)),
                                         "; or fetch it: ", fetch));
    }
    snapshot.repository.revision = commits.front();
    found = repository / snapshots / commits.front();
  }
  snapshot.folder = *std::move(found);
  return std::optional(std::move(snapshot));
}

std::optional<Snapshot> snapshot_at(const fs::path& folder) {
  if (folder.empty()) return std::nullopt;
  // As it is named first: a part of the cache may be a link to a folder of another name.
  for (const fs::path& whole : std::array{plain(folder), followed(folder)}) {
    const fs::path above = whole.parent_path();
    if (above.filename() != snapshots) continue;
    const fs::path repository = above.parent_path();
    std::string id = id_of(repository.filename().native());
    if (id.empty()) continue;
    return Snapshot{.folder = whole,
                    .repository = {.id = std::move(id), .revision = whole.filename().string()},
                    .cache = repository.parent_path()};
  }
  return std::nullopt;
}

std::string download_command(const Cache& cache, const Snapshot& snapshot) {
  const Repository& repository = snapshot.repository;
  std::string command =
      cat(cache.offline ? "HF_HUB_OFFLINE=0 " : "", "hf download ", shell_word(repository.id));
  if (repository.revision != main_branch)
    command += cat(" --revision ", shell_word(repository.revision));
  // `hf` reads the same environment.
  if (!snapshot.cache.empty() && followed(snapshot.cache) != followed(cache.folder))
    command += cat(" --cache-dir ", shell_word(snapshot.cache.native()));
  return command;
}

Error lacks_file(const Cache& cache, const Snapshot& snapshot, const fs::path& file) {
  return {ErrorCode::bad_file,
          cat(printable(snapshot.repository.id), " lacks ", printable(file.filename().native()),
              " in the Hugging Face cache"),
          printable(file.native()),
          cat("finish its download: ", download_command(cache, snapshot))};
}

Result<void> check_links(const Cache& cache, const Snapshot& snapshot,
                         std::span<const std::string_view> endings) {
  MOTLEY_TRY(const std::vector<std::string> names, list_folder(snapshot.folder));
  for (const std::string& name : names) {
    const auto ends = [&](std::string_view ending) { return name.ends_with(ending); };
    if (std::ranges::none_of(endings, ends)) continue;
    const fs::path file = snapshot.folder / name;
    std::error_code failure;
    // A link to nothing exists as a link only. Other failures are reported when the file is read.
    if (!fs::exists(file, failure) && !failure) return lacks_file(cache, snapshot, file);
  }
  return {};
}

}  // namespace motley::hub
