#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "hub/repository.h"

// The Hugging Face cache, as huggingface_hub lays it out:
//
//   models--ORG--NAME/refs/REV              the commit of a branch, a tag or refs/pr/N, as text
//   models--ORG--NAME/snapshots/COMMIT/...  links to ../../blobs/...
//
// It is only read: nothing is locked or written, so it may be read-only, and each part of it may be
// a link to elsewhere.
namespace motley::hub {

struct Cache {
  std::filesystem::path folder;  // empty: there is none
  bool offline = false;  // downloads are forbidden by HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE
};

// A folder snapshots/COMMIT.
struct Snapshot {
  std::filesystem::path folder;
  Repository repository;
  std::filesystem::path cache;  // that it lies in
};

// Whether there is anything of a repository, of whichever revision.
bool holds(const Cache& cache, const std::string& id);

// The snapshot of a repository's revision. As in huggingface_hub, a commit is written whole, and a
// revision that is not there is replaced by no other.
Result<Snapshot> find_snapshot(const Cache& cache, const Repository& repository);

// The snapshot that a folder models--ORG--NAME, named by its path, stands for: that of the branch
// main, or else the only one. Nothing if the folder is no such repository.
Result<std::optional<Snapshot>> snapshot_of_folder(const std::filesystem::path& folder,
                                                   const Cache& cache);

// What a folder snapshots/COMMIT is the snapshot of, judged by its path; `revision` is the commit.
std::optional<Snapshot> snapshot_at(const std::filesystem::path& folder);

// The command that fetches a snapshot, or what it lacks: "hf download ORG/NAME --revision REV".
std::string download_command(const Cache& cache, const Snapshot& snapshot);

// The error of a snapshot without a file that is needed.
Error lacks_file(const Cache& cache, const Snapshot& snapshot, const std::filesystem::path& file);

// Refuses a snapshot with a file that is a link to a blob that is not there. Only names with one
// of these endings are looked at; a broken picture does no harm.
Result<void> check_links(const Cache& cache, const Snapshot& snapshot,
                         std::span<const std::string_view> endings);

}  // namespace motley::hub
