#include "cli/bench/steps/random_adapters.h"

#include <algorithm>
#include <array>

#include "base/cat.h"
#include "base/units.h"

namespace motley::cli {
namespace {

// Adapters of one rank in host memory, from which copies on the device are made.
struct Template {
  std::unique_ptr<lora::Pool> pool;
  lora::Handle adapter;
  AdapterNumbers numbers;
  std::uint64_t device_pages = 0;
};

Result<Template> make_template(const model::Model& model, tensor::Device& device,
                               lora::Pool::Options pool, const lora::RandomAdapter& kind) {
  const lora::Adapter adapter = lora::random_adapter(model.base_view(), kind);
  Template made;
  made.numbers = {.numbers = lora::factor_numbers(adapter),
                  .bytes_each = static_cast<double>(bits(pool.dtype)) / 8};
  made.device_pages = lora::Pool::pages_of(adapter, pool);
  pool.directory = false;
  pool.bytes = lora::Pool::pages_of(adapter, pool) * pool.page_bytes;
  MOTLEY_TRY(made.pool, lora::Pool::create(device.pinned_memory(), pool));
  MOTLEY_TRY(made.adapter, made.pool->load("template", adapter));
  return made;
}

lora::RandomAdapter wanted(const RandomAdapters::Options& options, std::size_t kind) {
  return {.rank = options.ranks[kind], .shared_outer = options.shared_outer, .seed = kind + 1};
}

}  // namespace

Result<void> RandomAdapters::add(lora::Handle handle, int number) {
  const float scale = 1.0F + static_cast<float>(number) / 1024.0F;
  MOTLEY_TRY(lora::Mix mix, lora::Mix::make(std::array{lora::Mix::Part{std::move(handle), scale}}));
  mixes_.push_back(std::move(mix));
  return {};
}

// Each is cut anew, since a copy of pages would be one rank's.
Result<std::unique_ptr<RandomAdapters>> RandomAdapters::create_on_ranks(const model::Model& model,
                                                                        tensor::Device& device,
                                                                        const Options& options) {
  lora::Pool::Options pool{.dtype = options.factors,
                           .experts = model.factor_layout(),
                           .directory = device.id().kind == tensor::DeviceKind::cuda,
                           .shards = model.base_view().shards()};
  std::unique_ptr<RandomAdapters> made(new RandomAdapters());
  std::vector<lora::Adapter> kinds;
  std::vector<std::uint64_t> pages;
  for (std::size_t i = 0; i < std::min(options.ranks.size(), std::size_t(options.count)); ++i) {
    made->largest_rank_ =
        std::max<int>(made->largest_rank_, lora::padded_rank(options.ranks[i], DType::f8_e4m3));
    kinds.push_back(lora::random_adapter(model.base_view(), wanted(options, i)));
    pages.push_back(lora::Pool::pages_of(kinds.back(), pool));
  }
  for (int i = 0; i < options.count; ++i)
    pool.bytes += pages[static_cast<std::size_t>(i) % kinds.size()] * pool.page_bytes;
  // Shards of other ranks may take a few pages more.
  lora::Pool::Options theirs = pool;
  theirs.bytes += theirs.bytes / 4 + (std::uint64_t{64} << 20);
  MOTLEY_TRY(pool.other_ranks, options.others->make_pools(theirs));
  MOTLEY_TRY(made->pool_, lora::Pool::create(device, pool));
  made->bytes_ = pool.bytes;
  for (int i = 0; i < options.count; ++i) {
    const lora::Adapter& adapter = kinds[static_cast<std::size_t>(i) % kinds.size()];
    MOTLEY_TRY(lora::Handle handle, made->pool_->load(cat("adapter-", i), adapter));
    MOTLEY_TRY_VOID(made->add(std::move(handle), i));
    // A rank reads about its part of them.
    made->numbers_.push_back(
        {.numbers = lora::factor_numbers(adapter),
         .bytes_each = static_cast<double>(bits(pool.dtype)) / 8 / options.others->ranks()});
  }
  return made;
}

Result<std::unique_ptr<RandomAdapters>> RandomAdapters::create(const model::Model& model,
                                                               tensor::Device& device,
                                                               const Options& options) {
  if (options.others != nullptr) return create_on_ranks(model, device, options);
  const bool on_gpu = device.id().kind == tensor::DeviceKind::cuda;
  lora::Pool::Options pool{
      .dtype = options.factors, .experts = model.factor_layout(), .directory = on_gpu};
  const std::size_t kinds = std::min(options.ranks.size(), static_cast<std::size_t>(options.count));
  std::unique_ptr<RandomAdapters> made(new RandomAdapters());
  std::vector<Template> templates;
  for (std::size_t i = 0; i < kinds; ++i) {
    const int rank = options.ranks[i];
    made->largest_rank_ =
        std::max<int>(made->largest_rank_, lora::padded_rank(rank, DType::f8_e4m3));
    MOTLEY_TRY(Template each, make_template(model, device, pool, wanted(options, i)));
    templates.push_back(std::move(each));
  }
  std::uint64_t pages = 0;
  for (int i = 0; i < options.count; ++i)
    pages += templates[static_cast<std::size_t>(i) % kinds].device_pages;
  pool.bytes = pages * pool.page_bytes;
  MOTLEY_TRY(const tensor::MemoryInfo memory, device.memory());
  if (pool.bytes > memory.available)
    return Error(ErrorCode::out_of_memory,
                 cat(options.count, " adapters take ", format_bytes(pool.bytes), ", and ",
                     format_bytes(memory.available), " are left"),
                 device.description(), "use fewer adapters or --layers");
  MOTLEY_TRY(made->pool_, lora::Pool::create(device, pool));
  made->bytes_ = pool.bytes;
  for (int i = 0; i < options.count; ++i) {
    const Template& from = templates[static_cast<std::size_t>(i) % kinds];
    MOTLEY_TRY(lora::Handle handle, made->pool_->load(cat("adapter-", i), from.adapter));
    MOTLEY_TRY_VOID(made->add(std::move(handle), i));
    made->numbers_.push_back(from.numbers);
  }
  return made;
}

}  // namespace motley::cli
