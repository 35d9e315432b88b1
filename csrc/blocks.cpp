#include "blocks.hpp"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(__unix__) || defined(__APPLE__)
#define ENTRENAR_MMAP 1
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace entrenar {
namespace {

char* round_up(char* address, size_t multiple) {
    const uintptr_t value = reinterpret_cast<uintptr_t>(address);
    return address + (multiple - value % multiple) % multiple;
}

#ifdef ENTRENAR_MMAP
size_t page_size() {
    static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return size;
}

void unmap(char* from, char* to) {
    if (from < to) munmap(from, static_cast<size_t>(to - from));
}

// The header has a page of its own in front, so that data can start on a huge page.
Block* from_mmap(size_t capacity) {
    const size_t lead = page_size();
    const size_t wanted = (lead + capacity + lead - 1) / lead * lead;
    const size_t slack = capacity >= kHugePage ? kHugePage : 0;
    void* given = mmap(nullptr, wanted + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (given == MAP_FAILED) return nullptr;
    char* base = static_cast<char*>(given);
    if (slack) {
        char* const last = base + wanted + slack;
        base = round_up(base + lead, kHugePage) - lead;
        unmap(static_cast<char*>(given), base);
        unmap(base + wanted, last);
#ifdef MADV_HUGEPAGE
        madvise(base, wanted, MADV_HUGEPAGE);  // a wish: the system may have none
#endif
    }
    return new (base + lead - sizeof(Block)) Block{base, wanted, capacity};
}
#endif

}  // namespace

Block* from_malloc(size_t capacity) {
    if (capacity > SIZE_MAX / 2) return nullptr;
    char* base = static_cast<char*>(std::malloc(capacity + sizeof(Block) + kAlignment));
    return base ? new (round_up(base, kAlignment)) Block{base, 0, capacity} : nullptr;
}

Block* from_system(size_t capacity) {
#ifdef ENTRENAR_MMAP
    if (Block* block = from_mmap(capacity)) return block;
#endif
    return from_malloc(capacity);
}

Block* from_donors(size_t capacity, Block* donors) {
#ifdef MREMAP_FIXED
    static std::atomic<bool> works{true};
    Block* block = works && donors && capacity >= kHugePage ? from_mmap(capacity) : nullptr;
    if (!block) return nullptr;
    char* to = block->data() + capacity / kHugePage * kHugePage;
    for (; donors && to > block->data(); donors = donors->older) {
        if (donors->mapped < kHugePage) continue;
        // Donors shrink from their end, and say so: what has left may be another thread's in the next moment.
        cut(donors, donors->data() + (donors->end() - donors->data()) / kHugePage * kHugePage);
        while (to > block->data() && donors->end() > donors->data()) {
            to -= kHugePage;
            char* const from = donors->end() - kHugePage;
            if (mremap(from, kHugePage, kHugePage, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to) {
                // Whether `to` is still mapped, and by whom, is unknown: all but this page goes back.
                works = false;
                unmap(to + kHugePage, block->end());
                unmap(block->base, to);
                return nullptr;
            }
            donors->mapped -= kHugePage;
        }
    }
    return block;
#else
    (void)capacity, (void)donors;
    return nullptr;
#endif
}

void cut(Block* block, char* end) {
#ifdef ENTRENAR_MMAP
    char* const last = block->end();
    if (end >= last) return;
    block->mapped = static_cast<size_t>(end - block->base);
    unmap(end, last);
#else
    (void)block, (void)end;
#endif
}

void to_system(Block* block) {
#ifdef ENTRENAR_MMAP
    if (block->mapped) {
        unmap(block->base, block->end());
        return;
    }
#endif
    std::free(block->base);
}

size_t physical_memory() {
#ifdef _SC_PHYS_PAGES
    const long pages = sysconf(_SC_PHYS_PAGES);
    if (pages > 0) return static_cast<size_t>(pages) * page_size();
#endif
    return 0;
}

}  // namespace entrenar
