// Blocks of memory as the system gives and takes them.
#pragma once

#include <cstddef>

namespace entrenar {

constexpr size_t kHugePage = size_t{1} << 21;  // mapped blocks from here on start on a huge page
constexpr size_t kAlignment = 64;              // a cache line, and the widest vector register

// Stands in the 64 bytes before the block's data.
struct alignas(kAlignment) Block {
    char* base;            // what the system gave
    size_t mapped;         // bytes mapped from there; 0: base is malloc's
    size_t capacity;       // bytes of data
    Block *newer, *older;  // the pool's lists: idle blocks in the order they were freed,
    Block *above, *below;  // and those of one capacity, the last freed on top

    char* data() { return reinterpret_cast<char*>(this + 1); }
    char* end() { return base + mapped; }
    static Block* of(void* data) { return static_cast<Block*>(data) - 1; }
};
static_assert(sizeof(Block) == kAlignment, "data() must keep the alignment");

// Null: out of memory.
Block* from_malloc(size_t capacity);
Block* from_system(size_t capacity);  // mapped, and so zero, where the system maps

// A mapped block with the pages of others, a chain by `older`: page tables change, and nothing is zeroed or copied.
// What the donors lack comes fresh.  Donors lose pages from their end.  Null: it can't be had like that.
Block* from_donors(size_t capacity, Block* donors);

// Cuts a mapped block's range off at `end`.
void cut(Block* block, char* end);

void to_system(Block* block);

// The machine's memory in bytes; 0: unknown.
size_t physical_memory();

}  // namespace entrenar
