// What an engine does while it knows many adapters by name: loads a second, and the time of a
// request for 4 tokens, alone and while another thread loads. Adapters are made in memory and tiny,
// and the model is a fake, so that only the engine's own work is measured.
//   build/release/bench/bench_adapter_names [names ...]

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/cat.h"
#include "base/check.h"
#include "base/system/clock.h"
#include "engine/engine.h"
#include "engine/residency/pool_store.h"
#include "engine/test_world.h"
#include "lora/pages/pool.h"
#include "lora/pages/test_pool.h"
#include "lora/test_base.h"
#include "tensor/device/cpu_device.h"

namespace motley::bench {
namespace {

using namespace std::chrono_literals;

constexpr int timed_loads = 200;
constexpr int timed_requests = 200;

class EndSink final : public engine::EventSink {
 public:
  void take(engine::Event event) override {
    if (const auto* const error = std::get_if<Error>(&event)) MOTLEY_CHECK(false, error->message());
    if (engine::is_last(event)) ended_.set_value();
  }
  void wait() { ended_.get_future().get(); }

 private:
  std::promise<void> ended_;
};

class World {
 public:
  World() {
    const lora::Pool::Options pages{.bytes = std::uint64_t{256} << 20, .page_bytes = 1024};
    pool_ = lora::Pool::create(device_, pages).value();
    const auto source = [](const engine::AdapterSpec& spec,
                           const lora::BaseView&) -> Result<lora::Adapter> {
      const auto seed = static_cast<std::uint32_t>(std::hash<std::string>()(spec.name));
      return lora::test::make_adapter(1, 8, 8, seed);
    };
    store_ = std::make_unique<engine::PoolStore>(
        engine::PoolStore::Options{.base = &base_, .pool = pool_.get(), .source = source});
    engine_ = engine::Engine::create({.executor = &executor_,
                                      .samplers = &samplers_,
                                      .adapters = store_.get(),
                                      .clock = &clock_},
                                     {.validate = false});
  }

  void load(int number) {
    std::promise<Result<void>> answer;
    engine_->load_adapter({.name = cat("adapter-", number)}, false,
                          [&](Result<void> result) { answer.set_value(std::move(result)); });
    answer.get_future().get().value();
  }
  Duration time_request(int adapter) {
    const TimePoint begin = clock_.now();
    const auto sink = std::make_shared<EndSink>();
    engine_
        ->submit(
            {.tokens = {1, 2, 3}, .adapters = {{cat("adapter-", adapter), 1}}, .max_tokens = 4},
            sink)
        .value();
    sink->wait();
    return clock_.now() - begin;
  }
  // The median over requests for different adapters.
  double request_seconds() {
    std::vector<double> each;
    for (int i = 0; i < timed_requests; ++i) each.push_back(seconds(time_request(i % 64)));
    std::ranges::nth_element(each, each.begin() + timed_requests / 2);
    return each[timed_requests / 2];
  }
  TimePoint now() const { return clock_.now(); }

 private:
  SteadyClock clock_;
  tensor::CpuDevice device_{{.threads = 1}};
  lora::test::FakeBase base_;
  std::unique_ptr<lora::Pool> pool_;
  engine::test::FakeExecutor executor_{engine::test::WorldOptions{}.limits};
  engine::test::FakeSamplers samplers_;
  std::unique_ptr<engine::PoolStore> store_;
  std::unique_ptr<engine::Engine> engine_;
};

void measure(int names) {
  World world;
  for (int i = 0; i < names; ++i) world.load(i);
  const TimePoint begin = world.now();
  for (int i = 0; i < timed_loads; ++i) world.load(names + i);
  const double loads_per_s = timed_loads / seconds(world.now() - begin);
  const double alone = world.request_seconds();
  std::atomic<bool> stopping = false;
  std::thread loader([&] {
    for (int i = names + timed_loads; !stopping; ++i) world.load(i);
  });
  const double beside = world.request_seconds();
  stopping = true;
  loader.join();
  std::printf("%6d  %12.0f  %12.3f  %22.3f\n", names, loads_per_s, alone * 1e3, beside * 1e3);
  std::fflush(stdout);
}

int run(std::span<char*> arguments) {
  std::vector<int> counts;
  for (const char* const argument : arguments) {
    const std::string_view text = argument;
    int count = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), count);
    MOTLEY_CHECK(failure == std::errc() && end == text.data() + text.size() && count >= 64,
                 "numbers of names, 64 and more");
    counts.push_back(count);
  }
  if (counts.empty()) counts = {100, 1000, 4000};
  std::printf("%6s  %12s  %12s  %22s\n", "names", "loads/s", "4 tokens, ms",
              "4 tokens beside loads");
  for (const int count : counts) measure(count);
  return 0;
}

}  // namespace
}  // namespace motley::bench

int main(int count, char** arguments) {
  return motley::bench::run(std::span(arguments, static_cast<std::size_t>(count)).subspan(1));
}
