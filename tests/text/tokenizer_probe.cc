// Encodes and decodes what standard input asks for, so that tools/fuzz_tokenizer.py can compare
// with the `tokenizers` package: tokenizer_probe TOKENIZER.json. A line of JSON each way:
//   "text" or {"bytes": [...]}       -> its ids, without what the post-processor adds
//   {"ids": [...], "skip": false}    -> the text of ids, with special tokens or without
//   {"error": "..."} in place of what could not be done

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "base/system/files.h"
#include "text/tokenizer.h"

namespace {

namespace json = motley::json;

std::vector<std::int32_t> ids_of(const json::Value& list) {
  std::vector<std::int32_t> ids;
  for (const json::Value& id : *list.if_array())
    ids.push_back(static_cast<std::int32_t>(*id.if_integer()));
  return ids;
}

json::Value answer(const motley::text::Tokenizer& tokenizer, const json::Value& question) {
  std::string text;
  if (const json::Object* object = question.if_object()) {
    if (const json::Value* ids = object->find("ids"))
      return tokenizer.decode(ids_of(*ids), *object->find("skip")->if_boolean());
    for (const std::int32_t byte : ids_of(*object->find("bytes"))) text += static_cast<char>(byte);
  } else {
    text = *question.if_string();
  }
  const auto ids = tokenizer.encode(text, {.add_special_tokens = false});
  if (!ids.ok()) {
    json::Object error;
    error.add("error", ids.error().message());
    return error;
  }
  json::Array list;
  for (const std::int32_t id : *ids) list.emplace_back(id);
  return list;
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return 2;
  const auto file = motley::MappedFile::open(words[1]);
  if (!file.ok()) return 1;
  const auto tokenizer = motley::text::Tokenizer::parse(file->text(), words[1]);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message().c_str());
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const std::string text =
        json::write(answer(*tokenizer, json::parse(line, "standard input").value())) + "\n";
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  return 0;
}
