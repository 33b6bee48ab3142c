#include "tensor/safetensors/safetensors.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/temporary_folder.h"
#include "tensor/convert.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::tensor {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class Safetensors : public testing::Test {
 protected:
  fs::path put(const std::string& name, std::string_view bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }

  TemporaryFolder temporary_;
  const fs::path& folder_ = temporary_.path();
};

// A file of that header and that many data bytes.
std::string container(std::string_view header, std::size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>((header.size() >> (8 * i)) & 0xff);
  file += header;
  for (std::size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i + 1);
  return file;
}

Result<SafetensorsHeader> parse(std::string_view file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "f");
}

std::string message_of(std::string_view file, ErrorCode expected = ErrorCode::bad_file) {
  const auto header = parse(file);
  if (header.ok()) return "accepted";
  EXPECT_EQ(header.error().code(), expected) << header.error().message();
  return header.error().message();
}

constexpr std::string_view one_tensor =
    R"({"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})";

TEST_F(Safetensors, ReadsNamesTypesShapesAndPlaces) {
  const std::string_view text =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I8","shape":[3],"data_offsets":[8,11]},)"
      R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("empty":{"dtype":"BF16","shape":[0,7],"data_offsets":[8,8]},)"
      R"("scalar":{"dtype":"U8","shape":[],"data_offsets":[11,12]}}   )";
  const auto header = parse(container(text, 12));
  ASSERT_TRUE(header.ok()) << header.error().message();
  ASSERT_EQ(header->entries.size(), 4U);
  EXPECT_EQ(header->metadata.at("format"), "pt");
  const SafetensorsEntry* const b = header->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, DType::i8);
  EXPECT_EQ(b->shape, (Shape{3}));
  EXPECT_EQ(b->begin, 8 + text.size() + 8);
  EXPECT_EQ(header->find("scalar")->shape.rank(), 0);
  EXPECT_EQ(header->find("nobody"), nullptr);
}

TEST_F(Safetensors, ReadsTensorsAtAnyByte) {
  // One byte before a float32 tensor.
  const std::string_view text = R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                R"("f":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  std::string file = container(text, 1);
  const std::array numbers = {1.25F, -3.5F};
  file.append(reinterpret_cast<const char*>(numbers.data()), sizeof numbers);
  const auto opened = SafetensorsFile::open(put("odd.safetensors", file));
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  const ConstTensor tensor = opened->tensor(*opened->header().find("f"));
  std::array<float, 2> read{};
  widen(tensor.dtype(), tensor.bytes(), 0, read);
  EXPECT_EQ(read, numbers);
}

TEST_F(Safetensors, AcceptsAFileWithoutTensors) { EXPECT_TRUE(parse(container("{}", 0)).ok()); }

TEST_F(Safetensors, AcceptsMetadataThatIsNull) {
  const auto header = parse(container(R"({"__metadata__":null})", 0));
  ASSERT_TRUE(header.ok()) << header.error().message();
  EXPECT_TRUE(header->metadata.empty());
}

// The shortest entries with the most values that the format and our shapes allow.
TEST_F(Safetensors, AcceptsTheDensestHeaderThatIsWhole) {
  std::string text = "{";
  for (int i = 0; i < 20'000; ++i) {
    if (i > 0) text += ',';
    text += cat('"', i, R"(":{"dtype":"U8","shape":[0,0,0,0,0,0,0,0],"data_offsets":[0,0]})");
  }
  text += '}';
  const auto header = parse(container(text, 0));
  ASSERT_TRUE(header.ok()) << header.error().message();
  EXPECT_EQ(header->entries.size(), 20'000U);
}

TEST_F(Safetensors, RefusesAHostileHeaderByTheNumberOfItsValues) {
  std::string text = R"({"a":[0)";
  while (text.size() < 4'000'000) text += ",0";
  text += "]}";
  EXPECT_THAT(message_of(container(text, 0)), HasSubstr("more than 1000016 JSON values"));
}

TEST_F(Safetensors, RefusesEveryTruncation) {
  const std::string whole = container(one_tensor, 8);
  ASSERT_TRUE(parse(whole).ok());
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_NE(message_of(std::string_view(whole).substr(0, length)), "accepted") << length;
}

TEST_F(Safetensors, RefusesDataAfterTheLastTensor) {
  EXPECT_THAT(message_of(container(one_tensor, 9)), HasSubstr("1 bytes after the last tensor (f)"));
}

TEST_F(Safetensors, RefusesAHugeHeader) {
  std::string file = container(one_tensor, 8);
  file[3] = 0x7f;
  EXPECT_THAT(message_of(file), HasSubstr("more than the 100000000"));
  file[7] = static_cast<char>(0xff);
  EXPECT_NE(message_of(file), "accepted");
}

TEST_F(Safetensors, RefusesAHeaderThatIsNoObject) {
  EXPECT_NE(message_of(container("[]", 0)), "accepted");
  EXPECT_NE(message_of(container("", 0)), "accepted");
  EXPECT_NE(message_of(container(" {}", 0)), "accepted");
}

TEST_F(Safetensors, RefusesPaddingOtherThanSpaces) {
  EXPECT_TRUE(parse(container("{}   ", 0)).ok());
  for (const std::string_view header :
       {std::string_view("{}\0", 3), std::string_view("{}\n"), std::string_view("{}\t"),
        std::string_view("{}\n  "), std::string_view("{} \r ")}) {
    EXPECT_THAT(message_of(container(header, 0)),
                HasSubstr("the header does not end with } and spaces"));
  }
}

TEST_F(Safetensors, NamesTheTensorThatOverlaps) {
  EXPECT_THAT(message_of(container(R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                                   R"("y":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
                                   7)),
              AllOf(HasSubstr("tensor 'y'"), HasSubstr("inside the tensor before it")));
}

TEST_F(Safetensors, NamesTheTensorBehindAHole) {
  EXPECT_THAT(message_of(container(R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                                   R"("y":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})",
                                   9)),
              AllOf(HasSubstr("tensor 'y'"), HasSubstr("hole from 4")));
}

TEST_F(Safetensors, RefusesAHoleAtTheBeginning) {
  EXPECT_THAT(message_of(container(R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5)),
              HasSubstr("hole from 0"));
}

TEST_F(Safetensors, RefusesAnEmptyTensorInsideAnother) {
  EXPECT_NE(message_of(container(R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                                 R"("y":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})",
                                 4)),
            "accepted");
}

TEST_F(Safetensors, RefusesOffsetsBeyondTheFile) {
  EXPECT_THAT(message_of(container(one_tensor, 4)),
              AllOf(HasSubstr("tensor 'a'"), HasSubstr("the file holds 4")));
}

TEST_F(Safetensors, RefusesSizesThatDisagree) {
  EXPECT_THAT(message_of(container(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8)),
              AllOf(HasSubstr("tensor 'a'"), HasSubstr("takes 12 bytes"), HasSubstr("span 8")));
}

TEST_F(Safetensors, RefusesOverflowingShapesAndOffsets) {
  for (const std::string_view entry :
       {R"("shape":[4611686018427387904,4],"data_offsets":[0,0])",
        R"("shape":[9223372036854775807],"data_offsets":[0,0])",
        R"("shape":[4294967296,4294967296,0],"data_offsets":[0,0])",
        R"("shape":[18446744073709551616],"data_offsets":[0,0])",
        R"("shape":[-1],"data_offsets":[0,0])", R"("shape":[1.5],"data_offsets":[0,6])",
        R"("shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4])",
        R"("shape":[1],"data_offsets":[0,9223372036854775807])",
        R"("shape":[1],"data_offsets":[9223372036854775807,9223372036854775807])",
        R"("shape":[1],"data_offsets":[4,0])", R"("shape":[1],"data_offsets":[-4,0])",
        R"("shape":[1],"data_offsets":[0])", R"("shape":[1],"data_offsets":[0,4,8])",
        R"("shape":1,"data_offsets":[0,4])", R"("shape":[[1]],"data_offsets":[0,4])"}) {
    const std::string text = cat(R"({"a":{"dtype":"F32",)", entry, "}}");
    EXPECT_THAT(message_of(container(text, 4)), HasSubstr("tensor 'a'")) << entry;
  }
}

TEST_F(Safetensors, RefusesHalfABytesWorthOfF4) {
  EXPECT_TRUE(parse(container(R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}})", 2)).ok());
  EXPECT_THAT(message_of(container(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2)),
              HasSubstr("ends inside a byte"));
}

TEST_F(Safetensors, NamesAnUnknownType) {
  EXPECT_THAT(
      message_of(container(R"({"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})", 3),
                 ErrorCode::unsupported),
      AllOf(HasSubstr("tensor 'a'"), HasSubstr("unknown dtype 'F6_E2M3'")));
}

TEST_F(Safetensors, RefusesANameTwice) {
  EXPECT_THAT(message_of(container(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                   R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                   2)),
              HasSubstr("key 'a' twice"));
}

TEST_F(Safetensors, RefusesFieldsThatTheFormatLacks) {
  EXPECT_THAT(message_of(container(
                  R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1]}})", 1)),
              AllOf(HasSubstr("tensor 'a'"), HasSubstr("unknown field 'strides'")));
  EXPECT_THAT(message_of(container(R"({"a":{"dtype":"U8","shape":[1]}})", 1)),
              HasSubstr("no field 'data_offsets'"));
  EXPECT_THAT(message_of(container(R"({"__metadata__":{"a":1}})", 0)),
              HasSubstr("expected a string"));
}

TEST_F(Safetensors, RefusesDeepJson) {
  const std::string text = cat(R"({"a":)", std::string(1000, '['), std::string(1000, ']'), "}");
  EXPECT_EQ(
      message_of(container(text, 0)),
      "JSON nested deeper than 8 (f, header, in 'a'): the file is damaged; copy or download it "
      "again");
}

TEST_F(Safetensors, NamesTheTensorWithAFieldTwice) {
  EXPECT_EQ(message_of(container(R"({"b":{"dtype":"U8","dtype":"U8"}})", 0)),
            "key 'dtype' twice in one object (f, header, in 'b'): the file is damaged; copy or "
            "download it again");
}

TEST_F(Safetensors, AdvisesReadersOfTheFile) {
  for (const std::string_view entry :
       {R"("dtype":1,"shape":[1],"data_offsets":[0,4])",
        R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])",
        R"("dtype":"F32","shape":{},"data_offsets":[0,4])",
        R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4])",
        R"("dtype":"F32","shape":[1],"data_offsets":["0",4])"}) {
    EXPECT_THAT(message_of(container(cat(R"({"a":{)", entry, "}}"), 4)),
                testing::EndsWith("): the file is damaged; copy or download it again"))
        << entry;
  }
}

TEST_F(Safetensors, WritesWhatItReads) {
  const std::array<float, 3> floats = {1.0F, -2.5F, 1e-30F};
  const std::array<std::uint8_t, 2> bytes = {9, 8};
  const std::array<bf16, 2> halves = {bf16{0x3F80}, bf16{0x8000}};
  const auto view = [](const auto& array, DType dtype, const Shape& shape) {
    return ConstTensor(reinterpret_cast<const std::byte*>(array.data()), dtype, shape);
  };
  const std::vector<NamedTensor> tensors = {
      {"bytes", view(bytes, DType::u8, {2})},
      {"halves\n\"quoted\"", view(halves, DType::bf16, {1, 2})},
      {"floats", view(floats, DType::f32, {3})},
      {"nothing", view(floats, DType::f32, {0, 5})}};
  const fs::path path = folder_ / "out.safetensors";
  ASSERT_TRUE(write_safetensors(path, tensors, {{"format", "pt"}}).ok());

  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message();
  EXPECT_EQ(file->header().metadata.at("format"), "pt");
  ASSERT_EQ(file->header().entries.size(), tensors.size());
  for (const NamedTensor& expected : tensors) {
    const SafetensorsEntry* const entry = file->header().find(expected.name);
    ASSERT_NE(entry, nullptr) << expected.name;
    const ConstTensor found = file->tensor(*entry);
    EXPECT_EQ(found.dtype(), expected.tensor.dtype());
    EXPECT_EQ(found.shape(), expected.tensor.shape());
    EXPECT_TRUE(found.is_aligned(static_cast<std::size_t>(bits(found.dtype())) / 8));
    const auto count = static_cast<std::size_t>(found.byte_count());
    EXPECT_EQ(std::memcmp(found.bytes(), expected.tensor.bytes(), count), 0) << expected.name;
  }
}

TEST_F(Safetensors, RefusesToWriteANameTwice) {
  const std::array<float, 1> number = {1.0F};
  const ConstTensor tensor(reinterpret_cast<const std::byte*>(number.data()), DType::f32, {1});
  const std::vector<NamedTensor> tensors = {{"a", tensor}, {"a", tensor}};
  EXPECT_FALSE(write_safetensors(folder_ / "x.safetensors", tensors).ok());
  EXPECT_TRUE(fs::is_empty(folder_));
}

// Three one-float tensors a, b, c.
std::vector<NamedTensor> three(const std::array<float, 3>& numbers) {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < 3; ++i)
    tensors.push_back(
        {std::string(1, static_cast<char>('a' + i)),
         ConstTensor(reinterpret_cast<const std::byte*>(&numbers[i]), DType::f32, {1})});
  return tensors;
}

class CheckpointFolder : public Safetensors {
 protected:
  // Shards "model-00001-of-00002" with a and b, "model-00002-of-00002" with c, and their index.
  void write_two_shards() {
    ASSERT_TRUE(write_checkpoint(folder_, "model", three(numbers_), 8).ok());
  }

  std::string refusal() const {
    const auto opened = Checkpoint::open(folder_, "model");
    if (opened.ok()) return "accepted";
    code_ = opened.error().code();
    return opened.error().message();
  }

  const std::array<float, 3> numbers_ = {1.0F, 2.0F, 3.0F};
  mutable ErrorCode code_ = ErrorCode::internal;
};

TEST_F(CheckpointFolder, ReadsOneFile) {
  ASSERT_TRUE(write_checkpoint(folder_, "model", three(numbers_), 1000).ok());
  const auto opened = Checkpoint::open(folder_, "model");
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  EXPECT_EQ(opened->files().size(), 1U);
  EXPECT_EQ(opened->find("b")->tensor().data<float>()[0], 2.0F);
}

TEST_F(CheckpointFolder, ReadsShards) {
  write_two_shards();
  const auto opened = Checkpoint::open(folder_, "model");
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  EXPECT_EQ(opened->files().size(), 2U);
  ASSERT_EQ(opened->items().size(), 3U);
  EXPECT_EQ(opened->items()[2].name(), "c");
  EXPECT_EQ(opened->find("c")->tensor().data<float>()[0], 3.0F);
  EXPECT_EQ(opened->find("d"), nullptr);
}

TEST_F(CheckpointFolder, ACopyOutlivesItsFiles) {
  write_two_shards();
  const auto opened = Checkpoint::open(folder_, "model", FileAccess::copied);
  ASSERT_TRUE(opened.ok());
  for (const SafetensorsFile& file : opened->files()) std::filesystem::resize_file(file.path(), 0);
  EXPECT_EQ(opened->find("a")->tensor().data<float>()[0], 1.0F);
  EXPECT_EQ(opened->find("c")->tensor().data<float>()[0], 3.0F);
}

TEST_F(CheckpointFolder, StaysWholeWhenMoved) {
  write_two_shards();
  auto opened = Checkpoint::open(folder_, "model");
  ASSERT_TRUE(opened.ok());
  const Checkpoint moved = *std::move(opened);
  EXPECT_EQ(moved.find("a")->tensor().data<float>()[0], 1.0F);
}

TEST_F(CheckpointFolder, ReadsShardsBehindLinks) {
  write_two_shards();
  const fs::path shard = folder_ / "model-00001-of-00002.safetensors";
  fs::rename(shard, folder_ / "blob");
  fs::create_symlink("blob", shard);
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(CheckpointFolder, RefusesALoopOfLinks) {
  fs::create_symlink("model.safetensors", folder_ / "model.safetensors");
  EXPECT_THAT(refusal(), HasSubstr("symbolic links go round in a circle"));
  EXPECT_EQ(code_, ErrorCode::bad_file);
}

TEST_F(CheckpointFolder, NamesALinkWithoutItsTarget) {
  fs::create_symlink("../../blobs/4f", folder_ / "model.safetensors");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("a link to '../../blobs/4f', which is missing"),
                               HasSubstr("model.safetensors")));
  EXPECT_EQ(code_, ErrorCode::bad_file);
}

TEST_F(CheckpointFolder, RefusesAFolderOrAPipeInAFilesPlace) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    fs::create_directory(folder_ / name);
    EXPECT_THAT(refusal(), AllOf(HasSubstr("this is a folder"), HasSubstr(name),
                                 HasSubstr("the folder is damaged")));
    EXPECT_EQ(code_, ErrorCode::bad_file);
    fs::remove(folder_ / name);
    ASSERT_EQ(::mkfifo((folder_ / name).c_str(), 0600), 0);
    EXPECT_THAT(refusal(), HasSubstr("this is not a regular file"));
    EXPECT_EQ(code_, ErrorCode::bad_file);
    fs::remove(folder_ / name);
  }
  write_two_shards();
  fs::remove(folder_ / "model-00002-of-00002.safetensors");
  fs::create_directory(folder_ / "model-00002-of-00002.safetensors");
  EXPECT_THAT(refusal(), HasSubstr("model-00002-of-00002.safetensors"));
  EXPECT_EQ(code_, ErrorCode::bad_file);
}

TEST_F(CheckpointFolder, RefusesAMissingShard) {
  write_two_shards();
  fs::remove(folder_ / "model-00002-of-00002.safetensors");
  EXPECT_THAT(refusal(), HasSubstr("model-00002-of-00002.safetensors"));
}

TEST_F(CheckpointFolder, NamesATensorThatTheIndexLacks) {
  write_two_shards();
  put("model.safetensors.index.json", R"({"weight_map":{"a":"model-00001-of-00002.safetensors"}})");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("tensor 'b'"), HasSubstr("the index lacks it")));
}

TEST_F(CheckpointFolder, NamesATensorThatNoShardHolds) {
  write_two_shards();
  put("model.safetensors.index.json",
      R"({"weight_map":{"a":"model-00001-of-00002.safetensors",)"
      R"("b":"model-00001-of-00002.safetensors","c":"model-00002-of-00002.safetensors",)"
      R"("d":"model-00002-of-00002.safetensors"}})");
  EXPECT_THAT(refusal(), HasSubstr("tensor 'd' is not in model-00002-of-00002.safetensors"));
}

TEST_F(CheckpointFolder, RefusesAnIndexThatReachesOut) {
  for (const std::string file :
       {"../model.safetensors", "/etc/model.safetensors", "sub/a.safetensors", "weights.bin", ""}) {
    put("model.safetensors.index.json", cat(R"({"weight_map":{"a":")", file, R"("}})"));
    EXPECT_THAT(refusal(), HasSubstr("name a .safetensors file of the same folder")) << file;
  }
}

TEST_F(CheckpointFolder, RefusesADamagedIndex) {
  for (const std::string text : {"", "{", "[]", "{}", R"({"weight_map":[]})",
                                 R"({"weight_map":{}})", R"({"weight_map":{"a":1}})"}) {
    put("model.safetensors.index.json", text);
    EXPECT_THAT(refusal(), HasSubstr("model.safetensors.index.json")) << text;
    EXPECT_EQ(code_, ErrorCode::bad_file) << text;
  }
}

TEST_F(CheckpointFolder, RefusesAPickleByName) {
  put("pytorch_model.bin", "PK");
  EXPECT_THAT(refusal(), HasSubstr("the weights are a pickle, 'pytorch_model.bin'"));
  EXPECT_EQ(code_, ErrorCode::unsupported);
}

TEST_F(CheckpointFolder, TakesOnlyWeightsForPickles) {
  for (const char* name : {"pytorch_model-00001-of-00002.bin", "adapter_model.bin",
                           "consolidated.00.pth", "consolidated.pth"}) {
    put(name, "PK");
    EXPECT_THAT(refusal(), HasSubstr(cat("a pickle, '", name, "'")));
    fs::remove(folder_ / name);
  }
  for (const char* name : {"tokenizer.bin", "training_args.bin", "optimizer.pt", "rng_state.pth"})
    put(name, "PK");
  EXPECT_THAT(refusal(), HasSubstr("no model.safetensors"));
}

TEST_F(CheckpointFolder, SaysThatAFolderHoldsNoWeights) {
  EXPECT_THAT(refusal(), HasSubstr("no model.safetensors"));
  EXPECT_EQ(code_, ErrorCode::not_found);
}

TEST_F(CheckpointFolder, AnOldIndexDoesNotStayInForce) {
  write_two_shards();
  const std::array<float, 3> newer = {7.0F, 8.0F, 9.0F};
  ASSERT_TRUE(write_checkpoint(folder_, "model", three(newer), 1000).ok());
  EXPECT_FALSE(fs::exists(folder_ / "model.safetensors.index.json"));
  const auto opened = Checkpoint::open(folder_, "model");
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  EXPECT_EQ(opened->find("a")->tensor().data<float>()[0], 7.0F);
}

TEST_F(CheckpointFolder, AnOldFileDoesNotStayBesideAnIndex) {
  ASSERT_TRUE(write_checkpoint(folder_, "model", three(numbers_), 1000).ok());
  write_two_shards();
  EXPECT_FALSE(fs::exists(folder_ / "model.safetensors"));
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(CheckpointFolder, AnOldIndexIsGoneBeforeItsShardsAreReplaced) {
  write_two_shards();
  // The second shard can't be replaced, so that writing stops half way.
  fs::remove(folder_ / "model-00002-of-00002.safetensors");
  fs::create_directory(folder_ / "model-00002-of-00002.safetensors");
  ASSERT_FALSE(write_checkpoint(folder_, "model", three(numbers_), 8).ok());
  EXPECT_FALSE(fs::exists(folder_ / "model.safetensors.index.json"));
}

TEST_F(CheckpointFolder, RefusesANameTwiceBeforeAnythingIsWritten) {
  std::vector<NamedTensor> tensors = three(numbers_);
  for (const char* name : {"a", "__metadata__"}) {
    tensors[2].name = name;
    const auto written = write_checkpoint(folder_, "model", tensors, 1);
    ASSERT_FALSE(written.ok()) << name;
    EXPECT_THAT(written.error().message(), HasSubstr(name));
    EXPECT_TRUE(fs::is_empty(folder_)) << name;
  }
}

TEST_F(CheckpointFolder, SplitsByBytes) {
  ASSERT_TRUE(write_checkpoint(folder_, "model", three(numbers_), 1).ok());
  const auto opened = Checkpoint::open(folder_, "model");
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  EXPECT_EQ(opened->files().size(), 3U);
}

// More than any machine has: a copy before the header is judged would fail for lack of memory.
constexpr std::uintmax_t a_tebibyte = std::uintmax_t{1} << 40;

TEST_F(Safetensors, AHeaderIsJudgedBeforeAnythingIsCopied) {
  const fs::path zeros = put("zeros", "");
  fs::resize_file(zeros, a_tebibyte);
  const auto no_header = SafetensorsFile::open(zeros, FileAccess::copied);
  ASSERT_FALSE(no_header.ok());
  EXPECT_THAT(no_header.error().message(), HasSubstr("the header does not begin with {"));

  const fs::path hole = put("hole", container(one_tensor, 8));
  fs::resize_file(hole, a_tebibyte);
  const auto too_long = SafetensorsFile::open(hole, FileAccess::copied);
  ASSERT_FALSE(too_long.ok());
  EXPECT_THAT(too_long.error().message(), HasSubstr("bytes after the last tensor"));
}

TEST_F(Safetensors, ACallerJudgesAHeaderBeforeItsTensorsAreCopied) {
  const std::string header = cat(R"({"a":{"dtype":"U8","shape":[)", a_tebibyte,
                                 R"(],"data_offsets":[0,)", a_tebibyte, "]}}");
  const fs::path file = put("file", container(header, 0));
  fs::resize_file(file, a_tebibyte + 8 + header.size());
  const auto refused = SafetensorsFile::open(
      file, FileAccess::copied,
      [](const SafetensorsHeader& read, std::string_view where) -> Result<void> {
        EXPECT_NE(read.find("a"), nullptr);
        return Error(ErrorCode::bad_file, "not wanted", std::string(where));
      });
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message(), cat("not wanted (", file.string(), ")"));
}

TEST_F(Safetensors, OtherFilesAreNamedForWhatTheyAre) {
  EXPECT_THAT(message_of(std::string_view("GGUF\x03\0\0\0\0\0\0\0", 12), ErrorCode::unsupported),
              HasSubstr("a GGUF file"));
  EXPECT_THAT(message_of("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
              AllOf(HasSubstr("a Git LFS pointer"), HasSubstr("git lfs pull")));
  EXPECT_THAT(message_of(R"({"version": "1.0", "model": {}})"), HasSubstr("JSON, not safetensors"));
  EXPECT_THAT(message_of("PK\x03\x04\x14\x08\x08\x08", ErrorCode::unsupported),
              HasSubstr("a pickle or a zip archive"));
}

// 640 bytes, whose first two are also a pickle's, and 123, which is a brace.
TEST_F(Safetensors, ALengthThatLooksLikeAnotherFileIsALength) {
  for (const std::size_t length : {std::size_t{640}, std::size_t{123}}) {
    std::string header(one_tensor);
    header.resize(length, ' ');
    EXPECT_TRUE(parse(container(header, 8)).ok()) << length;
  }
}

TEST_F(CheckpointFolder, IsCheckedByNamesAndFirstBytes) {
  const auto message = [&] {
    const Result<void> checked = Checkpoint::check(folder_, "model");
    return checked.ok() ? std::string("ok") : checked.error().message();
  };
  EXPECT_THAT(message(), HasSubstr("no model.safetensors"));
  put("x.gguf", "GGUF");
  EXPECT_THAT(message(), HasSubstr("the weights are a GGUF file, 'x.gguf'"));
  put("model.safetensors", container(one_tensor, 8));
  EXPECT_EQ(message(), "ok");
  put("model.safetensors.index.json", R"({"weight_map": {"a": "model-1.safetensors"}})");
  EXPECT_THAT(message(), HasSubstr("model-1.safetensors"));
  put("model-1.safetensors", "short");
  EXPECT_THAT(message(), HasSubstr("too short for safetensors"));
  put("model-1.safetensors", container(one_tensor, 8));
  EXPECT_EQ(message(), "ok");
}

}  // namespace
}  // namespace motley::tensor
