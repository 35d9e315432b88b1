// A pool of large memory blocks: freed blocks are kept by size and handed out again, within a limit.
//
// A fresh block costs the kernel a page fault and a zeroing for each page; a reused one costs a list operation.
// The pool knows nothing of Python: every function may be called from any thread, with or without the GIL.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>

#include "blocks.hpp"

namespace entrenar {

constexpr size_t kPooled = size_t{1} << 16;  // smaller requests are malloc's business

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
    Block* pooled(size_t size, bool* zero);
    Block* take(size_t capacity, int size_class);
    void keep(Block* block, bool as_newest);
    Block* keep_rest(Block* donors, size_t allowed);
    void unlink(Block* block);
    static bool settle(Block* block);
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
