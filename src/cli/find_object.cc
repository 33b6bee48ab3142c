// Where the unwinding of exceptions finds its tables. A static libgcc asks glibc's function of this
// name, which glibc has since 2.35; with one of its own the program starts with an older glibc,
// too.

#include <cstdint>
#include <dlfcn.h>
#include <link.h>

namespace {

struct Search {
  std::uintptr_t address;
  dl_find_object* result;
};

// The loader gives addresses as numbers.
void* pointer(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// Of each loaded object: whether it holds the address. Not 0 ends the search.
int look(dl_phdr_info* object, std::size_t /*bytes*/, void* data) {
  const auto& search = *static_cast<const Search*>(data);
  dl_find_object found{};
  bool holds = false;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    const std::uintptr_t start = object->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == DLFO_EH_SEGMENT_TYPE) found.dlfo_eh_frame = pointer(start);
    if (segment.p_type != PT_LOAD || search.address < start ||
        search.address - start >= segment.p_memsz)
      continue;
    holds = true;
    found.dlfo_map_start = pointer(start);
    found.dlfo_map_end = pointer(start + segment.p_memsz);
  }
  if (!holds) return 0;
  *search.result = found;
  return 1;
}

}  // namespace

// Hidden: libraries that are opened at run time go on with glibc's. Of an object the bounds are
// those of the segment; `dlfo_link_map` is null.
// NOLINTNEXTLINE(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): glibc's name
extern "C" __attribute__((visibility("hidden"))) int _dl_find_object(
    void* address, dl_find_object* result) noexcept {
  Search search{.address = reinterpret_cast<std::uintptr_t>(address), .result = result};
  return ::dl_iterate_phdr(look, &search) != 0 && result->dlfo_eh_frame != nullptr ? 0 : -1;
}
