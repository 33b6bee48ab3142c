// Reads the input as a table of thresholds. What is accepted has rows that ascend, and is the same
// once written and read again; what is refused gets a message of one line that names the file.

#include "kernels/tuning/tuning.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/cat.h"
#include "base/check.h"

namespace {

using motley::kernels::TunedRow;

void check_rows(const std::vector<TunedRow>& rows) {
  std::int64_t last = 0;
  for (const TunedRow& row : rows) {
    MOTLEY_CHECK(row.up_to > last, "rows that ascend");
    last = row.up_to;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tuning = motley::kernels::parse_tuning(text, "tuning.json");
  if (!tuning.ok()) {
    const std::string message = tuning.error().message();
    MOTLEY_CHECK(message == motley::printable(message), "one printable line");
    MOTLEY_CHECK(message.find("tuning.json") != std::string::npos, "a refusal names the file");
    return 0;
  }
  for (const auto& dense : tuning->dense) {
    MOTLEY_CHECK(!dense.shape.outputs.empty(), "a product at least");
    check_rows(dense.rows);
  }
  for (const auto& experts : tuning->experts) check_rows(experts.rows);
  const auto again =
      motley::kernels::parse_tuning(motley::kernels::write_tuning(*tuning), "tuning.json");
  MOTLEY_CHECK(again.ok() && *again == *tuning, "the same when it is written and read again");
  return 0;
}
