#include "serving/prompts/path_redaction.h"

#include <gtest/gtest.h>

namespace motley::serving {
namespace {

Error wrong(std::string what, std::string where) {
  return {ErrorCode::bad_file, std::move(what), std::move(where), "do something"};
}

TEST(PathRedaction, TheClientsOwnPathStandsForTheResolvedOne) {
  const auto seen = [](const std::string& where) {
    return without_server_paths(wrong("what", where), "/srv/secret/poet", "tenant/poet").where();
  };
  EXPECT_EQ(seen("adapter 'x', /srv/secret/poet, tensor 'model.layers.0.q_proj'"),
            "adapter 'x', tenant/poet, tensor 'model.layers.0.q_proj'");
  EXPECT_EQ(seen("/srv/secret/poet/adapter_config.json, r"), "tenant/poet/adapter_config.json, r");
  EXPECT_EQ(seen("adapter 'a/b', element 3 of 7/8"), "adapter 'a/b', element 3 of 7/8");
}

TEST(PathRedaction, OfOtherPathsTheLastNameIsLeft) {
  const auto seen = [](const std::string& what) {
    return without_server_paths(wrong(what, ""), "/srv/secret/poet", "/links/poet").what();
  };
  EXPECT_EQ(seen("a link to '/var/lib/blobs of all/4f2a', which is missing"),
            "a link to '4f2a', which is missing");
  EXPECT_EQ(seen("can't read (/srv/secret/poets/x): gone"), "can't read (x): gone");
  EXPECT_EQ(seen("no such folder '/links/poet/deeper'"), "no such folder '/links/poet/deeper'");
  EXPECT_EQ(seen("/a, /b/c"), "a, c");
}

TEST(PathRedaction, ATemplatesPlaceIsItsFilesName) {
  const Error error =
      without_server_paths(wrong("no '/etc' here", "/srv/models/x/tokenizer_config.json, line 3"));
  EXPECT_EQ(error.message(), "no '/etc' here (tokenizer_config.json, line 3): do something");
  EXPECT_EQ(error.code(), ErrorCode::bad_file);
}

}  // namespace
}  // namespace motley::serving
