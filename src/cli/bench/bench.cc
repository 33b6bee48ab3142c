// motley bench: steps of models compared with the device's limits, and loads on engines and
// servers.

#include "base/cat.h"
#include "cli/bench/load/command.h"
#include "cli/bench/random_model.h"
#include "cli/bench/steps/command.h"
#include "cli/bench/tune/command.h"
#include "cli/command.h"
#include "cli/options/arguments/option_values.h"
#include "cli/options/settings/model_settings.h"
#include "model/config/shapes.h"

namespace motley::cli {
namespace {

Result<void> run_bench(const Arguments& arguments, Output output) {
  const bool shape = arguments.has("--shape");
  const bool model = !arguments.positional(0).empty();
  const bool url = arguments.has("--url");
  if (shape + model + url > 1)
    return wrong_option("more than one thing to measure", "motley bench",
                        "give MODEL, --shape or --url");
  if (shape + model + url == 0) {
    std::vector<std::string_view> names;
    for (const model::NamedShape& each : model::named_shapes()) names.push_back(each.name);
    return wrong_option("nothing to measure", "motley bench",
                        cat("give MODEL, --url, or --shape with one of ", join(names)));
  }
  if (arguments.has("--tune")) {
    if (url)
      return wrong_option("measures this machine's GPU, not a server", "--tune",
                          "give MODEL or --shape");
    return run_bench_tune(arguments, output);
  }
  if (arguments.has("--output"))
    return wrong_option("writes what --tune measures", "--output", "add --tune, or leave it out");
  if (asks_for_load(arguments)) return run_bench_load(arguments, output);
  return run_bench_steps(arguments, output);
}

}  // namespace

Command bench_command() {
  std::vector<OptionSpec> options = random_model_option_specs();
  for (const std::vector<OptionSpec>& more :
       {step_option_specs(), load_option_specs(), tune_option_specs(), model_option_specs()})
    options.insert(options.end(), more.begin(), more.end());
  options.push_back({"--json", "", "a line of JSON for each case, and nothing else"});
  return {.spec = {.name = "bench",
                   .summary = "time steps of a model's shape with random weights against their "
                              "floor (--shape), or a load on an\nengine (MODEL) or a server "
                              "(--url), or a GPU's kernels (--tune)",
                   .positionals = {},
                   .optional_positional = "MODEL",
                   .options = std::move(options),
                   .examples =
                       {"motley bench --shape qwen3-30b-a3b --device cuda --adapters 0,1,4",
                        "motley bench models/demo --adapter fortune=models/demo/adapters/fortune "
                        "--concurrency 1,8,32",
                        "motley bench --url http://127.0.0.1:8000 --rate 5,20 --duration 60 "
                        "--zipf 1",
                        "motley bench MODEL --device cuda --tune --output card.json"},
                   .others = OthersOptions::mapped},
          .run = run_bench};
}

}  // namespace motley::cli
