#include "server/api/fields/field_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/files.h"

namespace motley::server {
namespace {

TEST(FieldLimits, StandInTheGuide) {
  const std::string guide = read_text(MOTLEY_HTTP_GUIDE, 1 << 20).value();
  std::string table = "| field | at most |\n|---|---|\n";
  for (const FieldLimit& each : field_limits::all)
    table += cat("| ", each.field, " | ", each.most, " ", each.of, " |\n");
  EXPECT_THAT(guide, testing::HasSubstr(table)) << "the guide has to have this table:\n" << table;
}

}  // namespace
}  // namespace motley::server
