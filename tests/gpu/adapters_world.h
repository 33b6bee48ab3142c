#pragma once

#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "gpu/device_kernels.h"
#include "gpu/device_memory.h"
#include "kernels/elementary.h"
#include "lora/apply/step_table.h"
#include "lora/test_world.h"

// Adapters in pages of the GPU, and the same on the host.
namespace motley::gpu_tests {

using lora::Adapter;
using lora::Projection;
using lora::Site;
using lora::test::AdapterMaker;
using tensor::Tensor;

inline constexpr tensor::DeviceId on_gpu{.kind = tensor::DeviceKind::cuda};

inline constexpr Site q_site{0, Projection::q};
inline constexpr Site k_site{0, Projection::k};
inline constexpr Site v_site{0, Projection::v};

// Numbers that every page type holds exactly, whatever power of two scales their row.
inline std::vector<float> coarse_numbers(std::mt19937& random, std::int64_t count) {
  std::vector<float> numbers(static_cast<std::size_t>(count));
  std::uniform_int_distribution<int> eighths(-8, 8);
  for (float& number : numbers) number = static_cast<float>(eighths(random)) / 8;
  return numbers;
}

// The same adapters in the host's float32 pages and on the GPU.
class BothPools {
 public:
  BothPools(DType pages, int rows)
      : gpu_(tensor::open_device({.kind = tensor::DeviceChoice::Kind::cuda}).value()),
        stream_(gpu_->create_stream().value()),
        pool_(lora::Pool::create(*gpu_, {.bytes = std::uint64_t{64} << 20,
                                         .page_bytes = 4096,
                                         .dtype = pages,
                                         .directory = true,
                                         .poison = true})
                  .value()),
        table_(lora::StepTable::create(*gpu_, *pool_,
                                       {.rows = rows, .labels = rows, .terms = 8 * rows})
                   .value()) {}

  struct Part {
    const Adapter* adapter;
    float scale;
  };
  // A row's mix; none is the base.
  void build(const std::vector<std::vector<Part>>& rows) {
    std::vector<lora::Mix> host;
    std::vector<lora::Mix> device;
    for (const std::vector<Part>& row : rows) {
      std::vector<lora::Mix::Part> here;
      std::vector<lora::Mix::Part> there;
      for (const Part& part : row) {
        const auto& [a, b] = handles(*part.adapter);
        here.push_back({a, part.scale});
        there.push_back({b, part.scale});
      }
      host.push_back(lora::Mix::make(here).value());
      device.push_back(lora::Mix::make(there).value());
    }
    host_batch_.build(host);
    device_batch_.build(device);
    table_->upload(device_batch_, *stream_).value();
  }

  const lora::StepTable& table() const { return *table_; }
  lora::RowMixes on_host() const {
    return {.batch = &host_batch_, .labels = host_batch_.labels().data()};
  }
  lora::RowMixes on_device() const {
    return {.batch = &device_batch_, .labels = table_->labels(), .table = table_.get()};
  }
  ops::Context context() const {
    return {.kernels = &device_table(), .stream = device_table().on(stream_->handle())};
  }
  const ops::Context& host_context() const { return world_.context; }
  void finish_stream() {
    stream_->synchronize().value();
    launches().value();
  }

 private:
  const std::pair<lora::Handle, lora::Handle>& handles(const Adapter& adapter) {
    const std::string name = to_string(adapter.version);
    const auto known = loaded_.find(name);
    if (known != loaded_.end()) return known->second;
    return loaded_[name] = {world_.load(adapter), pool_->load(name, adapter).value()};
  }

  std::unique_ptr<tensor::Device> gpu_;
  std::unique_ptr<tensor::Stream> stream_;
  std::unique_ptr<lora::Pool> pool_;
  std::unique_ptr<lora::StepTable> table_;
  lora::test::World world_{DType::f32};
  std::map<std::string, std::pair<lora::Handle, lora::Handle>> loaded_;
  lora::Batch host_batch_;
  lora::Batch device_batch_;
};

using Mixes = std::vector<std::vector<BothPools::Part>>;  // of rows

template <class T>
Tensor view(const DeviceArray<T>& array, const tensor::Shape& shape) {
  return {reinterpret_cast<std::byte*>(array.data()), tensor::dtype_of<T>, shape, on_gpu};
}

class AdapterTest : public testing::Test {
 protected:
  using Sizes = std::vector<std::pair<Site, std::pair<std::int64_t, std::int64_t>>>;  // in, out
  using More = std::function<void(AdapterMaker&, lora::SiteDelta&)>;
  Adapter make(const Sizes& sites, int rank, const More& more = {}) {
    AdapterMaker maker(random);
    for (const auto& [site, size] : sites) {
      const auto& [in, out] = size;
      const bool embed = site.projection == Projection::embed;
      const int a = embed ? add(maker, in, rank) : add(maker, rank, in);
      const int b = add(maker, out, rank);
      maker.site(site, in, out).factors[0] = maker.factors(a, b, rank, 0.25F);
      if (more) more(maker, maker.adapter.sites.back());
    }
    return maker.done();
  }
  int add(AdapterMaker& maker, std::int64_t rows, std::int64_t columns) {
    const int index = maker.add(rows, columns);
    maker.adapter.matrices.back().values = coarse_numbers(random, rows * columns);
    return index;
  }

  std::mt19937 random{23};
};

// Over types of pages.
class GpuAdapters : public AdapterTest, public testing::WithParamInterface<DType> {};

}  // namespace motley::gpu_tests
