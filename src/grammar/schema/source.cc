#include "grammar/schema/source.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "base/cat.h"

namespace motley::grammar::schema {
namespace {

using json::Array;
using json::Member;

std::string unescaped(std::string_view part) {
  std::string text;
  for (std::size_t i = 0; i < part.size(); ++i) {
    const auto hex = [](char c) {
      return c >= '0' && c <= '9'   ? c - '0'
             : c >= 'a' && c <= 'f' ? c - 'a' + 10
             : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                    : -1;
    };
    if (part[i] == '%' && i + 2 < part.size() && hex(part[i + 1]) >= 0 && hex(part[i + 2]) >= 0) {
      text += static_cast<char>(hex(part[i + 1]) * 16 + hex(part[i + 2]));
      i += 2;
    } else {
      text += part[i];
    }
  }
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '~' && i + 1 < text.size();
    if (escape && (text[i + 1] == '0' || text[i + 1] == '1'))
      result += text[++i] == '0' ? '~' : '/';
    else
      result += text[i];
  }
  return result;
}

// Follows a path through objects and lists; it is empty or begins with a slash.
const Value* walk(const Value* at, std::string_view path) {
  while (at != nullptr && !path.empty()) {
    if (path.front() != '/') return nullptr;
    path.remove_prefix(1);
    const std::string part = unescaped(path.substr(0, path.find('/')));
    path.remove_prefix(std::min(path.find('/'), path.size()));
    if (const Object* const object = at->if_object()) {
      at = object->find(part);
    } else if (const Array* const list = at->if_array()) {
      const bool is_index = !part.empty() && part.size() < 7 &&
                            part.find_first_not_of("0123456789") == std::string::npos;
      const std::size_t index = is_index ? std::stoul(part) : list->size();
      at = index < list->size() ? &(*list)[index] : nullptr;
    } else {
      at = nullptr;
    }
  }
  return at;
}

// "path.key.", bounded.
std::string path_to(std::string_view path, std::string_view key) {
  constexpr std::size_t max_path = 150;
  constexpr std::size_t max_key = 50;
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string text(path);
  if (path.size() > max_path) return text;
  for (const char c : key.substr(0, max_key)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > 0x20 && byte < 0x7F && c != ',' && c != '%' && c != '.')
      text += c;
    else
      text += cat("%", digits[byte >> 4U], digits[byte & 15U]);
  }
  return text + ".";
}

}  // namespace

Source::Source(const Value& root) : root_(root) {
  std::vector<const Value*> open = {&root};
  while (!open.empty()) {
    const Value& value = *open.back();
    open.pop_back();
    if (const Array* const list = value.if_array()) {
      for (const Value& each : *list) open.push_back(&each);
    }
    const Object* const object = value.if_object();
    if (object == nullptr) continue;
    for (const Member& member : object->members()) {
      open.push_back(&member.value);
      const std::string* const name = member.value.if_string();
      if (name == nullptr) continue;
      if (member.key == "$anchor" || member.key == "$dynamicAnchor")
        anchors_.try_emplace(cat("#", *name), &value);
      if (member.key != "$id") continue;
      if (&value != &root && !name->starts_with('#')) has_resources_ = true;
      anchors_.try_emplace(*name, &value);
    }
  }
}

const Value* Source::find(std::string_view reference) const {
  if (const auto known = anchors_.find(reference); known != anchors_.end()) return known->second;
  const std::size_t mark = reference.find('#');
  if (mark == std::string_view::npos) return nullptr;
  const std::string_view base = reference.substr(0, mark);
  const Value* from = &root_;
  if (!base.empty()) {
    const auto known = anchors_.find(base);
    if (known == anchors_.end()) return nullptr;
    from = known->second;
  } else if (has_resources_) {
    return nullptr;
  }
  const std::string_view fragment = reference.substr(mark + 1);
  if (!base.empty() && !fragment.empty() && fragment.front() != '/') {
    const auto known = anchors_.find(cat("#", fragment));
    return known == anchors_.end() ? nullptr : known->second;
  }
  return walk(from, fragment);
}

void Source::leave_out(const Object* schema, std::string_view keyword) {
  while (true) {
    const auto origin = origins_.find(schema);
    if (origin == origins_.end()) break;
    std::tie(schema, keyword) = origin->second;
  }
  left_out_[schema].insert(keyword);
}

std::vector<std::string> Source::left_out() const {
  constexpr std::size_t max_places = 64;
  struct At {
    const Value* value;
    std::string path;
  };
  std::vector<std::string> places;
  std::vector<At> open;
  if (!left_out_.empty()) open.push_back({&root_, ""});
  while (!open.empty() && places.size() < max_places) {
    const At at = std::move(open.back());
    open.pop_back();
    std::vector<At> inside;
    if (const Array* const list = at.value->if_array()) {
      for (std::size_t i = 0; i < list->size(); ++i)
        inside.push_back({&(*list)[i], path_to(at.path, cat(i))});
    }
    if (const Object* const object = at.value->if_object()) {
      if (const auto found = left_out_.find(object); found != left_out_.end()) {
        for (const std::string_view keyword : found->second) {
          if (places.size() < max_places) places.push_back(cat(at.path, keyword));
        }
      }
      for (const Member& member : object->members())
        inside.push_back({&member.value, path_to(at.path, member.key)});
    }
    std::ranges::move(inside.rbegin(), inside.rend(), std::back_inserter(open));
  }
  return places;
}

const Value* Source::own(Value schema, const Object* origin, std::string_view keyword) {
  std::unique_ptr<Value>& place = own_[{origin, cat(keyword, json::write(schema))}];
  if (place == nullptr) {
    place = std::make_unique<Value>(std::move(schema));
    if (const Object* const object = place->if_object()) origins_[object] = {origin, keyword};
  }
  return place.get();
}

}  // namespace motley::grammar::schema
