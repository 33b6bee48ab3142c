#include "hub/repository.h"

#include <string>

#include <gtest/gtest.h>

#include "base/cat.h"

namespace motley::hub {
namespace {

Repository parsed(std::string_view text) { return parse_repository(text).value(); }

std::string error(std::string_view text) {
  const auto repository = parse_repository(text);
  return repository.ok() ? cat("accepted as ", to_string(*repository))
                         : repository.error().message();
}

TEST(Repository, ANameMayHaveARevision) {
  EXPECT_EQ(parsed("acme/demo"), (Repository{"acme/demo", "main"}));
  EXPECT_EQ(parsed("Acme-1/de_mo.v2@v1.0"), (Repository{"Acme-1/de_mo.v2", "v1.0"}));
  EXPECT_EQ(parsed("acme/demo@refs/pr/1").revision, "refs/pr/1");
  EXPECT_EQ(parsed("acme/demo@feature/x@y").revision, "feature/x@y");
  EXPECT_EQ(to_string(parsed("acme/demo@main")), "acme/demo");
  EXPECT_EQ(to_string(parsed("acme/demo@refs/pr/1")), "acme/demo@refs/pr/1");
}

TEST(Repository, AnAddressMayLackTheOrganisationOrNameTheKind) {
  EXPECT_EQ(parsed("hf://acme/demo@v1"), (Repository{"acme/demo", "v1"}));
  EXPECT_EQ(parsed("hf://models/acme/demo"), (Repository{"acme/demo", "main"}));
  EXPECT_EQ(parsed("hf://gpt2"), (Repository{"gpt2", "main"}));
  EXPECT_EQ(parsed("hf://acme/demo@feature%2Fx").revision, "feature/x");
  EXPECT_EQ(parsed("acme/demo@feature%2Fx").revision, "feature%2Fx");
}

TEST(Repository, EachMistakeInANameIsNamed) {
  EXPECT_EQ(
      error("a/b/c"),
      "a repository's name has two parts, not 3 (a/b/c): a repository is ORG/NAME or ORG/NAME@REV");
  EXPECT_EQ(error("gpt2"),
            "a repository's name begins with its organisation (gpt2): write ORG/NAME, or hf://NAME "
            "if it has none");
  EXPECT_EQ(error("hf://"),
            "no repository is named (hf://): a repository is ORG/NAME or ORG/NAME@REV");
  EXPECT_EQ(error("hf://a/b/c/d"),
            "a repository's name has two parts, not 4 (hf://a/b/c/d): name the repository alone, "
            "hf://ORG/NAME, not a folder in it");
  EXPECT_EQ(error("hf://datasets/a/b"),
            "one of the hub's datasets, not a model or an adapter (hf://datasets/a/b): a "
            "repository is ORG/NAME or ORG/NAME@REV");
  EXPECT_EQ(error("a//b"),
            "a part of the repository's name is empty (a//b): a repository is ORG/NAME or "
            "ORG/NAME@REV");
  EXPECT_EQ(error("a/b c"),
            "a repository's name has letters, digits, '-', '_' and '.', not ' ' (a/b c): a "
            "repository is ORG/NAME or ORG/NAME@REV");
  EXPECT_EQ(error("a/b\n"),
            "a repository's name has no control characters (a/b\\n): a repository is "
            "ORG/NAME or ORG/NAME@REV");
  for (const std::string& bad :
       {std::string("a/b--c"), std::string("../b"), std::string("a/.."), std::string("a/b..c"),
        std::string("a/.b"), std::string("-a/b"), std::string("a/b-"), std::string("a/b.git"),
        cat("a/", std::string(97, 'x')), std::string("/b"), std::string("hf:///b"),
        std::string("a/\xc3\xa9")})
    EXPECT_FALSE(parse_repository(bad).ok()) << bad;
}

TEST(Repository, EachMistakeInARevisionIsNamed) {
  EXPECT_EQ(error("a/b@"),
            "no revision after the @ (a/b@): write ORG/NAME@REV, or leave @REV out "
            "for main");
  EXPECT_EQ(error("a/b@../../x"),
            "a revision has no '..' (a/b@../../x): write ORG/NAME@REV, or "
            "leave @REV out for main");
  for (const std::string_view bad : {"a/b@/x", "a/b@x/", "a/b@x//y", "a/b@.x", "a/b@x/.y",
                                     "a/b@x y", "a/b@x\ty", "a/b@x:y", "hf://a/b@..%2Fx"})
    EXPECT_FALSE(parse_repository(bad).ok()) << bad;
}

TEST(Repository, TheHubIgnoresCase) {
  EXPECT_TRUE(is_same_id("Acme/Demo", "acme/demo"));
  EXPECT_FALSE(is_same_id("acme/demo", "acme/demo2"));
}

}  // namespace
}  // namespace motley::hub
