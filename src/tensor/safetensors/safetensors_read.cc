#include <algorithm>
#include <cstring>
#include <utility>

#include "base/cat.h"
#include "base/json/json.h"
#include "tensor/safetensors/other_files.h"
#include "tensor/safetensors/safetensors.h"

namespace motley::tensor {
namespace {

constexpr std::uint64_t length_bytes = 8;
constexpr std::uint64_t longest_header = 100'000'000;

// No header that we read has more values than this: the shortest entry with 8 dimensions is 66
// bytes long and holds 14, every other has fewer in proportion. It bounds what a hostile header of
// short values takes in memory, while lists grow, by twenty times its length.
json::ParseLimits limits_of(std::string_view header) {
  return {.depth = 8, .values = static_cast<std::int64_t>(header.size() / 4) + 16};
}

Error damaged(std::string what, std::string_view where,
              std::string fix = "the file is damaged; copy or download it again") {
  return {ErrorCode::bad_file, std::move(what), std::string(where), std::move(fix)};
}

// The advice of JSON and shapes is meant for their authors.
Error as_damaged(const Error& error) {
  if (error.code() != ErrorCode::invalid_argument) return error;
  return damaged(error.what(), error.where());
}

// The length of the header, from the beginning of a file of that size.
Result<std::size_t> header_length(std::string_view beginning, std::size_t file_bytes,
                                  std::string_view where) {
  if (beginning.size() < length_bytes)
    return damaged(cat("too short for safetensors: ", beginning.size(), " bytes"), where);
  std::uint64_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;)
    length = (length << 8) | static_cast<unsigned char>(beginning[i]);
  if (length > longest_header) {
    if (auto other = describe_other_file(beginning, where)) return *std::move(other);
    return damaged(cat("a header of ", length, " bytes, more than the ", longest_header,
                       " that the format allows"),
                   where, "check that it is a safetensors file");
  }
  if (length > file_bytes - length_bytes)
    return damaged(cat("a header of ", length, " bytes in a file of ", file_bytes), where);
  return length;
}

// The header without its padding.
Result<std::string_view> trimmed(std::string_view header, std::string_view where) {
  if (header.empty() || header.front() != '{')
    return damaged("the header does not begin with {", where,
                   "check that it is a safetensors file");
  header.remove_suffix(header.size() - 1 - header.find_last_not_of(' '));
  if (header.back() != '}') return damaged("the header does not end with } and spaces", where);
  return header;
}

Result<std::map<std::string, std::string>> read_metadata(const json::Value& value,
                                                         std::string_view where) {
  MOTLEY_TRY(const json::Object* const object, value.as_object(where));
  std::map<std::string, std::string> metadata;
  for (const json::Member& member : object->members()) {
    MOTLEY_TRY(const std::string* const text,
               member.value.as_string(cat(where, ", ", quote(member.key))));
    metadata.emplace(member.key, *text);
  }
  return metadata;
}

Result<Shape> read_shape(const json::Value& value, std::string_view where) {
  const std::string place = cat(where, ", shape");
  MOTLEY_TRY(const json::Array* const list, value.as_array(place));
  std::vector<std::int64_t> dims;
  dims.reserve(list->size());
  for (const json::Value& item : *list) {
    MOTLEY_TRY(const std::int64_t length, item.as_integer(place));
    dims.push_back(length);
  }
  auto shape = Shape::make(dims);
  if (!shape.ok()) return std::move(shape).error().within(where);
  return shape;
}

struct Range {
  std::uint64_t begin;
  std::uint64_t end;
};

Result<Range> read_range(const json::Value& value, std::string_view where) {
  const std::string place = cat(where, ", data_offsets");
  MOTLEY_TRY(const json::Array* const list, value.as_array(place));
  if (list->size() != 2) return damaged(cat(list->size(), " offsets instead of 2"), place);
  MOTLEY_TRY(const std::int64_t begin, (*list)[0].as_integer(place));
  MOTLEY_TRY(const std::int64_t end, (*list)[1].as_integer(place));
  if (begin < 0 || end < begin)
    return damaged(cat("offsets ", begin, " to ", end, " are not a range"), place);
  return Range{static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end)};
}

// The entry with offsets from the beginning of the data.
Result<SafetensorsEntry> read_entry(const std::string& name, const json::Value& value,
                                    std::string_view where) {
  MOTLEY_TRY(const json::Object* const object, value.as_object(where));
  for (const json::Member& member : object->members()) {
    if (member.key != "dtype" && member.key != "shape" && member.key != "data_offsets")
      return damaged(cat("unknown field ", quote(member.key)), where,
                     "an entry holds dtype, shape and data_offsets");
  }
  const auto field = [&](std::string_view key) -> Result<const json::Value*> {
    if (const json::Value* found = object->find(key)) return found;
    return damaged(cat("no field ", quote(key)), where);
  };
  MOTLEY_TRY(const json::Value* const dtype_value, field("dtype"));
  MOTLEY_TRY(const json::Value* const shape_value, field("shape"));
  MOTLEY_TRY(const json::Value* const range_value, field("data_offsets"));

  MOTLEY_TRY(const std::string* const dtype_name, dtype_value->as_string(cat(where, ", dtype")));
  const auto dtype = dtype_from_name(*dtype_name);
  if (!dtype)
    return Error(ErrorCode::unsupported, cat("unknown dtype ", quote(*dtype_name)),
                 std::string(where), "convert the tensor to one of F32, F16, BF16 ...");
  MOTLEY_TRY(Shape shape, read_shape(*shape_value, where));
  MOTLEY_TRY(const Range range, read_range(*range_value, where));

  const auto bytes = bytes_of(*dtype, shape.elements());
  if (!bytes)
    return damaged(cat("shape ", to_string(shape), " of ", *dtype_name,
                       " is too large, or ends inside a byte"),
                   where);
  if (static_cast<std::uint64_t>(*bytes) != range.end - range.begin)
    return damaged(cat("shape ", to_string(shape), " of ", *dtype_name, " takes ", *bytes,
                       " bytes, and its offsets span ", range.end - range.begin),
                   where);
  return SafetensorsEntry{name, *dtype, shape, range.begin, range.end};
}

// Side by side from 0 to the end of the data, in order of place.
Result<void> check_layout(std::span<const SafetensorsEntry> entries, std::uint64_t data_bytes,
                          std::string_view where) {
  std::vector<const SafetensorsEntry*> by_place;
  by_place.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries) by_place.push_back(&entry);
  std::ranges::sort(by_place, [](const SafetensorsEntry* a, const SafetensorsEntry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  std::uint64_t end = 0;
  for (const SafetensorsEntry* entry : by_place) {
    const auto misplaced = [&](std::string what) {
      return damaged(std::move(what), cat(where, ", tensor ", quote(entry->name)));
    };
    if (entry->begin < end)
      return misplaced(cat("begins at byte ", entry->begin,
                           " of the data, inside the tensor before it, which ends at ", end));
    if (entry->begin > end)
      return misplaced(
          cat("begins at byte ", entry->begin, " of the data, leaving a hole from ", end));
    end = entry->end;
    if (end > data_bytes)
      return misplaced(cat("ends at byte ", end, " of the data, and the file holds ", data_bytes));
  }
  if (end != data_bytes)
    return damaged(cat(data_bytes - end, " bytes after the last tensor"), where);
  return {};
}

}  // namespace

const SafetensorsEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto at = std::ranges::lower_bound(entries, name, {}, [](const SafetensorsEntry& entry) {
    return std::string_view(entry.name);
  });
  return at != entries.end() && at->name == name ? &*at : nullptr;
}

namespace {

// `text`: the header with its padding, of a file of that size.
Result<SafetensorsHeader> parse_header(std::string_view text, std::size_t file_bytes,
                                       std::string_view where) {
  MOTLEY_TRY(const std::string_view trimmed_text, trimmed(text, where));
  const std::size_t data_begin = length_bytes + text.size();
  const auto parsed = json::parse(trimmed_text, cat(where, ", header"), limits_of(trimmed_text));
  if (!parsed.ok()) return as_damaged(parsed.error());
  const json::Object* const object = parsed.value().if_object();
  MOTLEY_CHECK(object != nullptr, "JSON that begins with { is an object");

  SafetensorsHeader header;
  header.entries.reserve(object->size());
  for (const json::Member& member : object->members()) {
    if (member.key == "__metadata__") {
      if (member.value.is_null()) continue;
      auto metadata = read_metadata(member.value, cat(where, ", __metadata__"));
      if (!metadata.ok()) return as_damaged(metadata.error());
      header.metadata = *std::move(metadata);
      continue;
    }
    auto entry = read_entry(member.key, member.value, cat(where, ", tensor ", quote(member.key)));
    if (!entry.ok()) return as_damaged(entry.error());
    header.entries.push_back(*std::move(entry));
  }
  MOTLEY_TRY_VOID(check_layout(header.entries, file_bytes - data_begin, where));
  for (SafetensorsEntry& entry : header.entries) {
    entry.begin += data_begin;
    entry.end += data_begin;
  }
  std::ranges::sort(header.entries, {}, &SafetensorsEntry::name);
  return header;
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file,
                                            std::string_view where) {
  const std::string_view all(reinterpret_cast<const char*>(file.data()), file.size());
  MOTLEY_TRY(const std::size_t length,
             header_length(all.substr(0, longest_magic), all.size(), where));
  return parse_header(all.substr(length_bytes, length), all.size(), where);
}

static_assert(first_bytes == longest_magic);

Result<std::size_t> data_begin(std::string_view beginning, std::uint64_t file_bytes,
                               std::string_view where) {
  MOTLEY_TRY(const std::size_t length, header_length(beginning, file_bytes, where));
  return length_bytes + length;
}

Result<SafetensorsHeader> parse_beginning(std::string_view beginning, std::uint64_t file_bytes,
                                          std::string_view where) {
  MOTLEY_TRY(const std::size_t end, data_begin(beginning, file_bytes, where));
  MOTLEY_CHECK(beginning.size() >= end, "all before the data");
  return parse_header(beginning.substr(length_bytes, end - length_bytes), file_bytes, where);
}

Result<void> check_safetensors_beginning(const std::filesystem::path& path) {
  MOTLEY_TRY(const OpenFile file, OpenFile::open(path));
  MOTLEY_TRY(const std::string beginning, file.read_at(0, longest_magic));
  MOTLEY_TRY_VOID(header_length(beginning, file.size(), printable(path.string())));
  return {};
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path,
                                              const FileRules& rules, const HeaderJudge& judge) {
  const std::string where = printable(path.string());
  MOTLEY_TRY(const OpenFile opened, OpenFile::open(path, rules));
  MOTLEY_TRY(const std::string beginning, opened.read_at(0, longest_magic));
  MOTLEY_TRY(const std::size_t length, header_length(beginning, opened.size(), where));
  MOTLEY_TRY(const std::string text, opened.read_at(length_bytes, length));
  MOTLEY_TRY(SafetensorsHeader header, parse_header(text, opened.size(), where));
  if (judge) MOTLEY_TRY_VOID(judge(header, where));
  MOTLEY_TRY(MappedFile file, opened.load());
  // What was judged is what the offsets are for.
  if (file.text().substr(length_bytes, length) != text)
    return damaged("the header changed while the file was read", where,
                   "someone writes to it; write under another name and rename, then try again");
  return SafetensorsFile(std::move(file), std::move(header));
}

Result<SafetensorsFile> SafetensorsFile::of(MappedFile file,
                                            std::optional<SafetensorsHeader> header) {
  if (!header) {
    MOTLEY_TRY(header, parse_safetensors(file.bytes(), printable(file.path().native())));
  }
  return SafetensorsFile(std::move(file), *std::move(header));
}

ConstTensor SafetensorsFile::tensor(const SafetensorsEntry& entry) const {
  return ConstTensor(file_.bytes().data() + entry.begin, entry.dtype, entry.shape);
}

void SafetensorsFile::prefetch(const SafetensorsEntry& entry) const {
  file_.prefetch(entry.begin, entry.end - entry.begin);
}

}  // namespace motley::tensor
