#include "lora/pages/readers.h"

#include <algorithm>
#include <utility>

namespace motley::lora {

Result<void> PageReaders::mark(tensor::Stream& reader) {
  auto found = std::ranges::find(readers_, &reader, &Reader::stream);
  if (found == readers_.end()) {
    readers_.emplace_back();
    found = readers_.end() - 1;
    found->stream = &reader;
  }
  Mark& mark = found->marks[found->next];
  if (mark.event == nullptr) {
    MOTLEY_TRY(mark.event, reader.record());
  } else {
    MOTLEY_TRY_VOID(reader.record(*mark.event));
  }
  mark.number = ++latest_;
  found->next = (found->next + 1) % kept;
  return {};
}

Result<void> PageReaders::hold_back(tensor::Stream& writer, std::uint64_t number) const {
  for (const Reader& reader : readers_) {
    // The last mark up to the number covers all before it; if none is kept, the first one after it.
    const Mark* last = nullptr;
    const Mark* first = nullptr;
    for (const Mark& mark : reader.marks) {
      if (mark.event == nullptr) continue;
      if (mark.number <= number && (last == nullptr || mark.number > last->number)) last = &mark;
      if (mark.number > number && (first == nullptr || mark.number < first->number)) first = &mark;
    }
    const Mark* const needed = last != nullptr ? last : first;
    if (needed != nullptr) MOTLEY_TRY_VOID(writer.wait(*needed->event));
  }
  return {};
}

Result<void> PageReaders::synchronize() const {
  for (const Reader& reader : readers_) {
    for (const Mark& mark : reader.marks) {
      if (mark.event != nullptr) MOTLEY_TRY_VOID(mark.event->synchronize());
    }
  }
  return {};
}

}  // namespace motley::lora
