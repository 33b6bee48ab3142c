#include "cli/inspect/supported.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "cli/run_motley.h"
#include "model/families.h"
#include "quant/formats.h"

namespace motley::cli {
namespace {

// The cells of the row for a kind or a family.
std::vector<std::string> row_of(const std::string& tables, std::string_view first) {
  const std::size_t begin = tables.find(cat("\n| ", first));
  EXPECT_NE(begin, std::string::npos) << first;
  const std::string line = tables.substr(begin + 2, tables.find('\n', begin + 1) - begin - 2);
  std::vector<std::string> cells;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = line.find('|', at);
    const std::string cell = line.substr(at, end - at);
    const std::size_t from = cell.find_first_not_of(' ');
    cells.push_back(
        from == std::string::npos ? "" : cell.substr(from, cell.find_last_not_of(' ') - from + 1));
    at = end + 1;
  }
  return cells;
}

TEST(Supported, NamesEveryFamilyAndFormat) {
  const std::string tables = motley({"inspect", "--supported"}).output;
  for (const model::Family& family : model::families())
    EXPECT_EQ(row_of(tables, family.model_type).size(), 2) << family.model_type;
  EXPECT_EQ(row_of(tables, "qwen3_moe")[1], "all");
  EXPECT_EQ(row_of(tables, "gpt_oss")[1], "bf16, f16, f32, mxfp4");
  EXPECT_EQ(row_of(tables, "llama")[1], "no experts");
  for (const quant::KnownFormat& known : quant::known_formats()) {
    if (known.files.empty()) continue;
    const std::vector<std::string> row = row_of(tables, quant::to_string(known.format));
    ASSERT_EQ(row.size(), 4) << quant::to_string(known.format);
    EXPECT_EQ(row[1], known.files);
    EXPECT_EQ(row[2], "cpu_grouped");
  }
  const std::size_t gpu = tables.find("### Weight formats on a GPU");
  if (tables.find("no CUDA") == std::string::npos) {
    EXPECT_EQ(row_of(tables.substr(gpu), "bf16"),
              (std::vector<std::string>{"bf16", "unquantised", "cuda_grouped", "cuda_exact",
                                        "gemv_bulk", "cublaslt"}));
  }
  EXPECT_EQ(motley({"inspect", "--supported", "path"}).status, 2);
}

TEST(Supported, KindsOfAdaptersAreTakenAndRefusedAsTheTableSays) {
  enum Column { dense = 1, experts, embedding, head, mixed };
  struct Case {
    std::string_view kind;
    Column column;
    std::string_view golden;
  };
  const std::string tables = supported_tables();
  for (const auto& [kind, column, golden] : std::vector<Case>{
           {"LoRA", dense, "attention"},
           {"LoRA", dense, "router"},
           {"LoRA", dense, "rslora"},
           {"LoRA", dense, "patterns"},
           {"LoRA", experts, "experts"},
           {"LoRA", embedding, "embeddings"},
           {"LoRA", head, "lm_head"},
           {"factors that all", experts, "shared_outer"},
           {"a bias behind B", dense, "lora_bias"},
           {"a bias behind B", experts, "refused_lora_bias_experts"},
           {"DoRA", dense, "dora"},
           {"DoRA", experts, "refused_dora_experts"},
           {"whole weights", dense, "refused_modules_to_save_norm"},
           {"whole weights", embedding, "embeddings_replaced"},
           {"PiSSA", dense, "refused_init_pissa"},
           {"OLoRA", dense, "refused_init_olora"},
           {"CorDA", dense, "refused_init_corda"},
           {"LoftQ", dense, "refused_init_loftq"},
           {"LoRA-GA", dense, "refused_init_lora_ga"},
           {"peft_type LOHA", dense, "refused_loha"},
           {"peft_type LOKR", dense, "refused_lokr"},
           {"peft_type OFT", dense, "refused_oft"},
           {"peft_type VERA", dense, "refused_vera"},
           {"peft_type IA3", dense, "refused_ia3"},
           {"peft_type ADALORA", dense, "refused_adalora"},
           {"activated LoRA", dense, "refused_alora"},
           {"rows of tables", embedding, "refused_trainable_tokens"},
           {"QA-LoRA", dense, "refused_qalora"},
           {"BD-LoRA", dense, "refused_bdlora"},
           {"KaSA", dense, "refused_kasa"},
           {"Arrow", dense, "refused_arrow"},
           {"repeated layers", dense, "refused_layer_replication"},
       }) {
    const std::string base = cat(MOTLEY_GOLDENS, "/qwen3_moe");
    const std::string found =
        motley({"inspect", cat(base, "/adapters/", golden), "--model", base}).output;
    const std::vector<std::string> cells = row_of(tables, kind);
    const bool taken = found.find("would be refused") == std::string::npos;
    EXPECT_EQ(cells[column], taken ? "yes" : "no") << golden << "\n" << found;
    if (!taken) continue;
    const bool alone = found.find("alone because") != std::string::npos;
    EXPECT_EQ(cells[mixed], alone ? "no" : "yes") << golden << "\n" << found;
  }
}

}  // namespace
}  // namespace motley::cli
