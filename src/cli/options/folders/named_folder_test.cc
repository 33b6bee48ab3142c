#include "cli/options/folders/named_folder.h"

#include <filesystem>
#include <string>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/temporary_folder.h"
#include "cli/command.h"
#include "cli/options/adapters/adapter_option.h"
#include "cli/options/settings/model_settings.h"
#include "cli/run_motley.h"

namespace motley::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::string_view pointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1342177280\n";
// The length of an empty header, and the header.
constexpr std::string_view no_tensors{"\x02\0\0\0\0\0\0\0{}", 10};

class NamedFolder : public testing::Test {
 protected:
  void put(std::string_view name, std::string_view content) const {
    fs::create_directories((folder_ / name).parent_path());
    folder_.file(name, content);
  }
  void put_adapter(std::string_view name) const {
    put(cat(name, "/adapter_config.json"),
        R"({"r": 2, "lora_alpha": 2, "base_model_name_or_path": "acme/demo"})");
    put(cat(name, "/adapter_model.safetensors"), no_tensors);
  }
  std::string at(std::string_view name) const { return (folder_ / name).string(); }

  std::string model_error(std::string_view name) const { return model_named(at(name)); }
  std::string model_named(const std::string& text) const {
    const auto found = find_model_folder(text, "serve", hub());
    return found.ok() ? cat("found ", found->string()) : found.error().message();
  }
  std::string adapter_error(std::string_view name) const { return adapter_named(at(name)); }
  std::string adapter_named(const std::string& text) const {
    const auto found = find_adapter_folder(text, hub());
    return found.ok() ? cat("found ", found->string()) : found.error().message();
  }

  // Of --adapter a=TEXT.
  std::string option_error(const std::string& text) const {
    const std::vector<std::string> words{MOTLEY_DEMO_MODEL, "--adapter", cat("a=", text)};
    Arguments arguments = Arguments::parse(serve_command().spec, words).value();
    arguments.set_environment({.hub = hub()});
    return read_adapter_options(arguments).error().message();
  }

  hub::Cache hub() const { return {.folder = folder_ / "hub"}; }
  void put_in_hub(const std::string& repository, const std::string& commit) const {
    const std::string root = cat("hub/models--", repository, "/");
    put(cat(root, "refs/main"), commit);
    put(cat(root, "snapshots/", commit, "/config.json"), "{}");
    put(cat(root, "snapshots/", commit, "/model.safetensors"), no_tensors);
  }
  // As huggingface_hub has it: the files are links to blobs.
  void put_adapter_in_hub(const std::string& repository, const std::string& commit) const {
    const std::string root = cat("hub/models--", repository, "/");
    put_adapter(cat(root, "blobs"));
    put(cat(root, "refs/main"), commit);
    fs::create_directories(folder_ / cat(root, "snapshots/", commit));
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
      fs::create_symlink(cat("../../blobs/", file),
                         folder_ / cat(root, "snapshots/", commit, "/", file));
  }

  TemporaryFolder folder_;
};

TEST_F(NamedFolder, AModelsFolderIsItself) {
  put("model/config.json", "{}");
  EXPECT_EQ(model_error("model"), cat("found ", at("model")));
  // Other mistakes have the messages of what reads the files.
  put("unknown/notes.txt", "");
  EXPECT_EQ(model_error("unknown"), cat("found ", at("unknown")));
}

TEST_F(NamedFolder, AFolderThatIsNotThereIsSaidAsSuch) {
  EXPECT_EQ(model_error("none"), cat("no such folder (", at("none"), "): check the path"));
  EXPECT_EQ(adapter_error("none"), cat("no such folder (", at("none"), "): check the path"));
  // Nothing that is not a repository's name is taken for one, nor what may be a folder here.
  for (const char* path : {"/Qwen/Qwen3", "./Qwen3", "~/Qwen3", "none", "src/none"}) {
    EXPECT_FALSE(means_repository(path, hub())) << path;
    EXPECT_EQ(model_named(path), cat("no such folder (", path, "): check the path"));
  }
}

TEST_F(NamedFolder, ARepositorysNameIsItsSnapshotInTheCache) {
  put_in_hub("acme--demo", "abc");
  const std::string found = cat("found ", at("hub/models--acme--demo/snapshots/abc"));
  EXPECT_EQ(model_named("acme/demo"), found);
  EXPECT_EQ(model_named("hf://acme/demo@main"), found);
  EXPECT_EQ(folder_name(at("hub/models--acme--demo/snapshots/abc")), "acme/demo");
  EXPECT_EQ(model_named("acme/other@v1"),
            cat("no such folder, and acme/other is not in the Hugging Face cache (", at("hub"),
                "): fetch it: hf download acme/other --revision v1"));
  EXPECT_THAT(model_named("acme/demo@v1"), HasSubstr("but not its revision 'v1'"));
  put_in_hub("gpt2", "abc");
  EXPECT_EQ(model_named("hf://gpt2"), cat("found ", at("hub/models--gpt2/snapshots/abc")));
  EXPECT_EQ(model_named("gpt2"),
            "no such folder (gpt2): check the path; hf://gpt2 is in the Hugging Face cache");
  // `src` is a folder here: only what is in the cache is taken for a repository.
  put_in_hub("src--demo", "abc");
  EXPECT_EQ(model_named("src/demo"), cat("found ", at("hub/models--src--demo/snapshots/abc")));
}

TEST_F(NamedFolder, AFolderOfARepositorysNameWins) {
  // Tests run in the source folder, where this one is.
  put_in_hub("models--demo", "abc");
  EXPECT_EQ(model_named(MOTLEY_DEMO_MODEL), cat("found ", MOTLEY_DEMO_MODEL));
  EXPECT_THAT(model_named(cat("hf://", MOTLEY_DEMO_MODEL)), HasSubstr("/snapshots/abc"));
  EXPECT_EQ(folder_name(MOTLEY_DEMO_MODEL), "demo");
  EXPECT_EQ(folder_name(cat("hf://", MOTLEY_DEMO_MODEL, "@v1")), MOTLEY_DEMO_MODEL);
  put_adapter("cynic@v2");
  EXPECT_EQ(adapter_error("cynic@v2"), cat("found ", at("cynic@v2")));
}

TEST_F(NamedFolder, ANameThatIsNoRepositorysIsExplained) {
  EXPECT_EQ(model_named("a/b/c"),
            "no such folder (a/b/c): check the path; a repository's name has "
            "two parts, not 3");
  EXPECT_EQ(model_named("acme/demo@"),
            "no such folder (acme/demo@): check the path; no revision after the @");
  EXPECT_EQ(model_named("acme/de mo"),
            "no such folder (acme/de mo): check the path; a repository's name has letters, digits, "
            "'-', '_' and '.', not ' '");
  EXPECT_THAT(model_named("hf://a/b/c/d"), HasSubstr("has two parts, not 4 (hf://a/b/c/d)"));
  EXPECT_THAT(model_named("hf://a"), HasSubstr("a is not in the Hugging Face cache"));
  EXPECT_THAT(model_named("hf://a/.."), HasSubstr("neither begins nor ends with '.'"));
  EXPECT_EQ(model_named("https://huggingface.co/acme/demo"),
            "no such folder (https://huggingface.co/acme/demo): name a folder, or a repository of "
            "Hugging Face as ORG/NAME[@REV]");
}

TEST_F(NamedFolder, WhatASnapshotLacksIsNamedWithTheCommandThatFetchesIt) {
  const std::string snapshot = "hub/models--acme--demo/snapshots/abc/";
  put_in_hub("acme--demo", "abc");
  fs::remove(folder_ / (snapshot + "model.safetensors"));
  EXPECT_EQ(model_named("acme/demo"),
            cat("no model.safetensors and no model.safetensors.index.json (",
                at("hub/models--acme--demo/snapshots/abc"),
                "): finish its download: hf download acme/demo"));
  put(snapshot + "model.safetensors.index.json",
      R"({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})");
  put(snapshot + "model-1.safetensors", no_tensors);
  EXPECT_EQ(model_named("acme/demo"),
            cat("no such file or folder (", at(snapshot + "model-2.safetensors"),
                "): finish its download: hf download acme/demo"));
  fs::create_symlink("../../blobs/none", folder_ / (snapshot + "model-2.safetensors"));
  EXPECT_THAT(model_named("acme/demo"), HasSubstr("acme/demo lacks model-2.safetensors"));
  // The path of the snapshot knows its repository too.
  EXPECT_THAT(model_error(snapshot), HasSubstr("hf download acme/demo --revision abc"));
  // Text can be tokenized without weights.
  EXPECT_TRUE(find_folder("acme/demo", hub()).ok());
  fs::remove(folder_ / (snapshot + "config.json"));
  fs::remove(folder_ / (snapshot + "model-2.safetensors"));
  EXPECT_EQ(model_named("acme/demo"),
            cat("acme/demo lacks config.json in the Hugging Face cache (",
                at(snapshot + "config.json"), "): finish its download: hf download acme/demo"));
}

TEST_F(NamedFolder, AnAdapterMayBeARepository) {
  put_adapter_in_hub("acme--cynic", "abc");
  const std::string found = cat("found ", at("hub/models--acme--cynic/snapshots/abc"));
  EXPECT_EQ(adapter_named("acme/cynic"), found);
  EXPECT_EQ(adapter_named("hf://acme/cynic"), found);
  EXPECT_EQ(option_error("acme/cynic,pined"),
            "'pined' is no option of an adapter (--adapter a): did you mean pinned?");
  EXPECT_THAT(model_named("acme/cynic"), HasSubstr("motley serve BASE --adapter acme/cynic="));
  const serving::StartAdapter named = parse_adapter_option("x=acme/cynic@refs/pr/1,pinned").value();
  EXPECT_EQ(named.path, "acme/cynic@refs/pr/1");
  EXPECT_TRUE(named.pinned);
  // Without NAME= it has the repository's, without the revision.
  EXPECT_EQ(parse_adapter_option("acme/cynic@v1").value().name, "acme/cynic");
  EXPECT_EQ(parse_adapter_option("hf://acme/cynic@v1,pinned").value().name, "acme/cynic");
  const fs::path root = folder_ / "hub/models--acme--cynic";
  fs::remove(root / "blobs/adapter_model.safetensors");
  EXPECT_EQ(adapter_named("acme/cynic"),
            cat("acme/cynic lacks adapter_model.safetensors in the Hugging Face cache (",
                (root / "snapshots/abc/adapter_model.safetensors").string(),
                "): finish its download: hf download acme/cynic"));
}

TEST_F(NamedFolder, CommandsFindRepositoriesInTheCacheOfTheEnvironment) {
  const Environment environment{.hub = hub()};
  for (const char* command : {"serve", "chat", "tokenize", "inspect"}) {
    const Outcome outcome = motley({command, "acme/demo@v1"}, environment);
    EXPECT_EQ(outcome.errors,
              cat("motley: no such folder, and acme/demo is not in the Hugging Face cache (",
                  at("hub"), "): fetch it: hf download acme/demo --revision v1\n"))
        << command;
    EXPECT_EQ(outcome.status, 1);
  }
  put_adapter_in_hub("acme--cynic", "abc");
  const Outcome outcome = motley({"inspect", "hf://acme/cynic"}, environment);
  EXPECT_THAT(outcome.output, HasSubstr("base_model_name_or_path: acme/demo"));
  EXPECT_EQ(motley({"inspect", "a/b/c"}, environment).errors,
            "motley: no such file or folder (a/b/c): check the path; a repository's name has two "
            "parts, not 3\n");
}

TEST_F(NamedFolder, AFileInPlaceOfAFolder) {
  put("model/model.safetensors", no_tensors);
  put("model/x.gguf", "GGUF\x03\0\0\0");
  EXPECT_EQ(model_error("model/model.safetensors"),
            cat("a file, and a folder is needed (", at("model/model.safetensors"),
                "): name its folder, ", at("model")));
  EXPECT_EQ(model_error("model/x.gguf"),
            cat("a GGUF file, which motley does not read (", at("model/x.gguf"),
                "): use the model's safetensors files"));
}

TEST_F(NamedFolder, APointerOfGitLfsIsNamed) {
  put("model/config.json", "{}");
  put("model/model.safetensors", pointer);
  EXPECT_EQ(model_error("model"),
            cat("a Git LFS pointer, not the file itself (", at("model/model.safetensors"),
                "): run git lfs pull in its folder"));
  put_adapter("adapter");
  put("adapter/adapter_model.safetensors", pointer);
  EXPECT_THAT(adapter_error("adapter"), HasSubstr("run git lfs pull"));
}

TEST_F(NamedFolder, AnAdapterInPlaceOfItsBaseSaysWhichBase) {
  put_adapter("cynic");
  EXPECT_EQ(model_error("cynic"),
            cat("an adapter of 'acme/demo', not a model (", at("cynic"),
                "): name its base's folder: motley serve BASE --adapter cynic=", at("cynic")));
  put("model/config.json", "{}");
  EXPECT_THAT(adapter_error("model"), HasSubstr("a model, not an adapter"));
}

TEST_F(NamedFolder, ATrainersFolderNamesItsCheckpoints) {
  put_adapter("run/checkpoint-1000");
  put_adapter("run/checkpoint-200");
  put("run/trainer_state.json", "{}");
  EXPECT_EQ(adapter_error("run"), cat("no adapter, but its folders hold some (", at("run"),
                                      "): name one: checkpoint-200, checkpoint-1000"));
  EXPECT_THAT(model_error("run"), HasSubstr("with --adapter one of checkpoint-200"));
  put("full/checkpoint-5/config.json", "{}");
  EXPECT_THAT(model_error("full"), AllOf(HasSubstr("no model, but its folders hold some"),
                                         HasSubstr("name one: checkpoint-5")));
}

TEST_F(NamedFolder, ACachesRepositoryIsItsSnapshotOfMain) {
  const std::string root = "hub/models--acme--demo/";
  for (const char* commit : {"abc", "def"}) {
    put(cat(root, "snapshots/", commit, "/config.json"), "{}");
    put(cat(root, "snapshots/", commit, "/model.safetensors"), no_tensors);
  }
  put(root + "refs/main", "def\n");
  const fs::path found = find_model_folder(folder_ / root, "serve", hub()).value();
  EXPECT_EQ(found, fs::canonical(folder_ / (root + "snapshots/def")));
  EXPECT_EQ(folder_name(found), "acme/demo");
  EXPECT_EQ(folder_name(folder_ / (root + "snapshots/abc")), "acme/demo");
  put(root + "refs/main", "gone");
  EXPECT_THAT(model_error(root), AllOf(HasSubstr("a cache of acme/demo without the snapshot"),
                                       HasSubstr("name one of snapshots/: abc, def")));
  const std::string one = "hub/models--solo/";
  put(one + "snapshots/abc/config.json", "{}");
  put(one + "snapshots/abc/model.safetensors", no_tensors);
  EXPECT_EQ(folder_name(find_model_folder(folder_ / one, "serve", hub()).value()), "solo");
  // Adapters are cached in the same way.
  put_adapter("hub/models--acme--cynic/snapshots/1");
  EXPECT_THAT(adapter_error("hub/models--acme--cynic"), HasSubstr("snapshots/1"));
}

TEST_F(NamedFolder, OtherFoldersHaveTheirOwnNames) {
  fs::create_directories(folder_ / "demo/snapshots/abc");
  EXPECT_EQ(folder_name(folder_ / "demo"), "demo");
  EXPECT_EQ(folder_name(folder_ / "demo/"), "demo");
  EXPECT_EQ(folder_name(folder_ / "demo/snapshots/.."), "demo");
  EXPECT_EQ(folder_name(folder_ / "demo/snapshots/abc"), "abc");
}

TEST_F(NamedFolder, AnUnreadableFolderIsNamedItself) {
  put_adapter("closed");
  ASSERT_EQ(::chmod((folder_ / "closed").c_str(), 0), 0);
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  // Permissions don't hold for root: this thread looks at files as another user.
  const int before = ::setfsuid(65534);
  const std::string error = adapter_error("closed");
  ::setfsuid(static_cast<uid_t>(before));
  ASSERT_EQ(::chmod((folder_ / "closed").c_str(), 0755), 0);
  EXPECT_EQ(error,
            cat("not allowed to read (", at("closed"), "): check who owns it and its permissions"));
}

// Words after the path are the options' (adapter_option_test.cc).
TEST_F(NamedFolder, AnAdaptersPathMayHaveACommaOfItsOwn) {
  put_adapter("a,b");
  EXPECT_EQ(adapter_error("a,b"), cat("found ", at("a,b")));
}

TEST_F(NamedFolder, WhatEveryBaseWouldRefuseIsRefusedAtOnce) {
  put("empty/notes.txt", "");
  EXPECT_THAT(adapter_error("empty"), HasSubstr("no adapter_config.json"));
  put("weightless/adapter_config.json", R"({"r": 2, "lora_alpha": 2})");
  EXPECT_THAT(adapter_error("weightless"), HasSubstr("no adapter_model.safetensors"));
  put_adapter("other");
  put("other/adapter_config.json", R"({"peft_type": "IA3"})");
  EXPECT_THAT(adapter_error("other"), HasSubstr("IA3"));
  put_adapter("cut");
  put("cut/adapter_model.safetensors", "cut");
  EXPECT_THAT(adapter_error("cut"), HasSubstr("too short for safetensors"));
}

// The demo's weights would load: the adapter's folder is looked at first.
TEST_F(NamedFolder, CommandsCheckAdaptersBeforeTheyLoadAModel) {
  put("model/config.json", "{}");
  for (const char* command : {"serve", "chat", "bench"}) {
    const Outcome outcome = motley({command, at("model"), "--adapter", cat("a=", at("none"))});
    EXPECT_EQ(outcome.errors, cat("motley: no such folder (", at("none"), "): check the path\n"));
  }
  const Outcome outcome = motley({"score", at("model"), "--adapter", cat("a=", at("none")),
                                  "--input", "in", "--output", "out"});
  EXPECT_THAT(outcome.errors, HasSubstr("no such folder"));
}

TEST_F(NamedFolder, ScoreOpensItsOutputBeforeItLoadsAModel) {
  // Without weights.
  fs::create_directory(folder_ / "model");
  fs::copy_file(cat(MOTLEY_DEMO_MODEL, "/config.json"), folder_ / "model/config.json");
  put("lines.jsonl", R"({"token_ids": [1, 2]})");
  const Outcome outcome = motley({"score", at("model"), "--device", "cpu", "--input",
                                  at("lines.jsonl"), "--output", at("none/scores.jsonl")});
  EXPECT_THAT(outcome.errors, HasSubstr("none/scores.jsonl"));
}

TEST_F(NamedFolder, AnAdapterMayHaveItsFoldersName) {
  put_adapter("runs/cynic");
  const serving::StartAdapter plain = parse_adapter_option(at("runs/cynic")).value();
  EXPECT_EQ(plain.name, "cynic");
  EXPECT_EQ(plain.path, at("runs/cynic"));
  const serving::StartAdapter with_options =
      parse_adapter_option(cat(at("runs/cynic"), "/,pinned,orientation=swapped")).value();
  EXPECT_EQ(with_options.name, "cynic");
  EXPECT_TRUE(with_options.pinned);
  EXPECT_EQ(with_options.load.orientation, lora::Orientation::swapped);
  EXPECT_EQ(
      parse_adapter_option("a b").error().fix(),
      "write NAME=PATH, with a name of 1 to 200 letters, digits, '.', '_', '/', '-', '@' or ':'");
}

TEST_F(NamedFolder, ChatTemplatesAreCheckedBeforeAModelLoads) {
  const std::string demo = MOTLEY_DEMO_MODEL;
  put("good.jinja", "{{ messages }}");
  put("broken.jinja", "{% if %}");
  put("a=b.jinja", "{{ messages }}");
  const auto error = [&](const std::vector<std::string>& options) {
    std::vector<std::string> call = {"serve", demo,        "--port",
                                     "0",     "--adapter", demo + "/adapters/cynic"};
    call.insert(call.end(), options.begin(), options.end());
    // Nothing is loaded: the device is checked after these options.
    call.insert(call.end(), {"--kv-memory", "none"});
    return motley(call).errors;
  };
  const auto accepted = HasSubstr("(--kv-memory");
  EXPECT_THAT(error({"--chat-template", at("good.jinja")}), accepted);
  EXPECT_THAT(error({"--chat-template", at("a=b.jinja")}), accepted);
  EXPECT_THAT(error({"--chat-template", cat("cynic=", at("good.jinja")), "--chat-template",
                     cat("demo=", at("good.jinja"))}),
              accepted);
  EXPECT_EQ(
      error({"--chat-template", at("none.jinja")}),
      cat("motley: no such file '", at("none.jinja"), "' (--chat-template): check the path\n"));
  EXPECT_EQ(error({"--chat-template", "poet=x.jinja"}),
            "motley: no adapter 'poet', and no file 'poet=x.jinja' (--chat-template): write "
            "NAME=FILE with the NAME of an --adapter\n");
  EXPECT_THAT(error({"--chat-template", "{{ messages }}"}), HasSubstr("a template's text"));
  EXPECT_THAT(error({"--chat-template", at("good.jinja"), "--chat-template", at("a=b.jinja")}),
              HasSubstr("two templates for the base"));
  const ModelSettings broken{.model = demo, .templates = {{.file = folder_ / "broken.jinja"}}};
  const auto text = load_text(broken);
  ASSERT_FALSE(text.ok());
  EXPECT_THAT(text.error().message(), AllOf(HasSubstr("--chat-template"), HasSubstr("broken")));
}

TEST_F(NamedFolder, AFolderOfAdaptersIsInspectedWithALineForEach) {
  put_adapter("all/cynic");
  put_adapter("all/poet");
  put("all/poet/adapter_config.json", R"({"peft_type": "IA3"})");
  put("all/readme.txt", "");
  const Outcome outcome = motley({"inspect", at("all")});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("poet: would be refused: "),
                                    HasSubstr("cynic: rank 2, convention none\n")));
  EXPECT_EQ(outcome.errors, cat("motley: 1 of 2 adapters would be refused (", at("all"),
                                "): the report says why\n"));
  const auto report = json::parse(motley({"inspect", at("all"), "--json"}).output, "report");
  EXPECT_EQ(report->if_object()->find("adapters")->if_array()->size(), 2U);
}

}  // namespace
}  // namespace motley::cli
