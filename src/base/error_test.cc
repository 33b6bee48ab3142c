#include "base/error.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace motley {
namespace {

struct Row {
  ErrorCode code;
  std::string name;
  int exit;
  int http;
};

// From the contract: exit status 1 if the work failed, 2 if the call is wrong; an HTTP status for
// each code.
const std::vector<Row>& contract() {
  static const std::vector<Row> rows = {
      {ErrorCode::invalid_argument, "invalid_argument", 2, 400},
      {ErrorCode::unauthorized, "unauthorized", 1, 401},
      {ErrorCode::forbidden, "forbidden", 1, 403},
      {ErrorCode::not_found, "not_found", 1, 404},
      {ErrorCode::conflict, "conflict", 1, 409},
      {ErrorCode::timed_out, "timed_out", 1, 408},
      {ErrorCode::too_long, "too_long", 1, 413},
      {ErrorCode::busy, "busy", 1, 429},
      {ErrorCode::cancelled, "cancelled", 1, 499},
      {ErrorCode::bad_file, "bad_file", 1, 400},
      {ErrorCode::unsupported, "unsupported", 1, 400},
      {ErrorCode::not_implemented, "not_implemented", 2, 501},
      {ErrorCode::unavailable, "unavailable", 1, 503},
      {ErrorCode::out_of_memory, "out_of_memory", 1, 503},
      {ErrorCode::storage_full, "storage_full", 1, 507},
      {ErrorCode::io, "io", 1, 500},
      {ErrorCode::internal, "internal", 1, 500},
      {ErrorCode::not_finite, "non_finite_logits", 1, 500},
  };
  return rows;
}

TEST(ErrorCodes, EachHasANameAnExitStatusAndAnHttpStatus) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < contract().size(); ++i) {
    const Row& row = contract()[i];
    EXPECT_EQ(static_cast<std::size_t>(row.code), i) << "a code is missing before " << row.name;
    EXPECT_EQ(name(row.code), row.name);
    EXPECT_EQ(exit_status(row.code), row.exit) << row.name;
    EXPECT_EQ(http_status(row.code), row.http) << row.name;
    names.insert(row.name);
  }
  EXPECT_EQ(names.size(), contract().size());
  EXPECT_EQ(static_cast<std::size_t>(ErrorCode::not_finite) + 1, contract().size());
}

TEST(ErrorCodesDeathTest, AValueThatIsNoCodeAborts) {
  EXPECT_DEATH(name(static_cast<ErrorCode>(200)), "broken invariant.*ErrorCode");
}

TEST(Error, SaysWhatWhereAndWhatToDo) {
  const Error error(ErrorCode::bad_file, "the header is cut off", "a.safetensors", "download it");
  EXPECT_EQ(error.message(), "the header is cut off (a.safetensors): download it");
  EXPECT_EQ(error.code(), ErrorCode::bad_file);
  EXPECT_EQ(error.what(), "the header is cut off");
  EXPECT_EQ(error.where(), "a.safetensors");
  EXPECT_EQ(error.fix(), "download it");
}

TEST(Error, LeavesOutEmptyParts) {
  EXPECT_EQ(Error(ErrorCode::io, "what").message(), "what");
  EXPECT_EQ(Error(ErrorCode::io, "what", "where").message(), "what (where)");
  EXPECT_EQ(Error(ErrorCode::io, "what", "", "fix").message(), "what: fix");
}

TEST(Error, StaysOnOneLineWhateverNamesHold) {
  std::string every;
  for (int byte = 0; byte < 256; ++byte) every += static_cast<char>(byte);
  const std::string message = Error(ErrorCode::io, every, every, "line\nbreak\r\x1b[2J").message();
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    EXPECT_TRUE(byte >= 0x20 && byte < 0x7f) << static_cast<int>(byte) << " in " << message;
  }
  EXPECT_TRUE(message.ends_with(": line\\nbreak\\x0d\\x1b[2J")) << message;
}

TEST(Error, IsSeenFromFurtherOut) {
  EXPECT_EQ(Error(ErrorCode::io, "x", "tensor 'a'").within("m.safetensors").where(),
            "m.safetensors, tensor 'a'");
  EXPECT_EQ(Error(ErrorCode::io, "x").within("m.safetensors").where(), "m.safetensors");
  const Error twice = Error(ErrorCode::bad_file, "x", "c", "fix").within("b").within("a");
  EXPECT_EQ(twice.message(), "x (a, b, c): fix");
  EXPECT_EQ(twice.code(), ErrorCode::bad_file);
}

TEST(Error, KeepsItsTextUnderAnotherCode) {
  const Error other = Error(ErrorCode::invalid_argument, "x", "y", "z").as(ErrorCode::bad_file);
  EXPECT_EQ(other.code(), ErrorCode::bad_file);
  EXPECT_EQ(other.message(), "x (y): z");
}

}  // namespace
}  // namespace motley
