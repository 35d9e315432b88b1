// A pool of large memory blocks: freed blocks are kept by size and handed out again, within a limit.
//
// A fresh block costs the kernel a page fault and a zeroing for each page; a reused one costs a list operation.
// The pool knows nothing of Python: every function may be called from any thread, with or without the GIL.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>

namespace entrenar {

constexpr size_t kPooled = size_t{1} << 16;    // smaller requests are malloc's business
constexpr size_t kHugePage = size_t{1} << 21;  // blocks from here on start on a huge page
constexpr size_t kAlignment = 64;              // a cache line, and the widest vector register

// Stands in the 64 bytes before a block's data.
struct alignas(kAlignment) Block {
    void* base;            // what the system gave
    size_t mapped;         // bytes mapped from there; 0: base is malloc's
    size_t capacity;       // bytes of data; at least kPooled where the block belongs to the pool
    Block *newer, *older;  // idle blocks in the order they were freed
    Block *above, *below;  // idle blocks of one capacity, the last freed on top

    void* data() { return this + 1; }
    static Block* of(void* data) { return static_cast<Block*>(data) - 1; }
};
static_assert(sizeof(Block) == kAlignment, "data() must keep the alignment");

struct Counts {
    size_t live, idle, peak, limit;  // bytes; peak: the highest live so far
    size_t hits, misses;
};

class Pool {
  public:
    static Pool& instance();

    void* allocate(size_t size, bool zeroed);  // null: out of memory
    void* reallocate(void* data, size_t size);
    void release(void* data);

    Counts counts();
    void set_limit(size_t bytes);
    void trim();           // idle blocks go back to the system, and peak starts again from live
    void enable(bool on);  // off: freed blocks go straight back
    bool enabled() const { return enabled_; }

  private:
    static constexpr int kSteps = 8;  // capacities per power of two: at most an eighth is wasted
    static constexpr int kClasses = (48 - 16 + 1) * kSteps;

    Pool();
    Block* take(size_t capacity, int size_class);
    void keep(Block* block);
    void unlink(Block* block);
    Block* evict(size_t allowed);
    void shrink(size_t allowed);
    static void give_back(Block* blocks);
    static int size_class(size_t size, size_t* capacity);

    std::mutex mutex_;
    Counts counts_{};
    std::atomic<bool> enabled_{true};
    Block* newest_ = nullptr;
    Block* oldest_ = nullptr;
    Block* tops_[kClasses] = {};
};

}  // namespace entrenar
