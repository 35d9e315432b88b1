#include "pool.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__unix__) || defined(__APPLE__)
#define ENTRENAR_MMAP 1
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace entrenar {
namespace {

uintptr_t round_up(uintptr_t x, uintptr_t multiple) { return (x + multiple - 1) / multiple * multiple; }

// ---- the system's memory -------------------------------------------------------------------------------------------

Block* from_malloc(size_t capacity) {
    if (capacity > SIZE_MAX / 2) return nullptr;
    void* base = std::malloc(capacity + sizeof(Block) + kAlignment);
    if (!base) return nullptr;
    void* place = reinterpret_cast<void*>(round_up(reinterpret_cast<uintptr_t>(base), kAlignment));
    return new (place) Block{base, 0, capacity};
}

#ifdef ENTRENAR_MMAP
size_t page_size() {
    static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return size;
}

// The header has a page of its own in front, so that data can start on a huge page.
Block* from_mmap(size_t capacity) {
    const size_t lead = page_size();
    const size_t wanted = round_up(lead + capacity, lead);
    const size_t slack = capacity >= kHugePage ? kHugePage : 0;
    void* given = mmap(nullptr, wanted + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (given == MAP_FAILED) return nullptr;
    char* base = static_cast<char*>(given);
    if (slack) {
        const uintptr_t data = round_up(reinterpret_cast<uintptr_t>(base) + lead, kHugePage);
        const size_t before = data - lead - reinterpret_cast<uintptr_t>(base);
        if (before) munmap(base, before);
        base += before;
        if (before < slack) munmap(base + wanted, slack - before);
#ifdef MADV_HUGEPAGE
        madvise(base, wanted, MADV_HUGEPAGE);  // a wish: the system may have none
#endif
    }
    return new (base + lead - sizeof(Block)) Block{base, wanted, capacity};
}
#endif

Block* from_system(size_t capacity) {
#ifdef ENTRENAR_MMAP
    if (Block* block = from_mmap(capacity)) return block;
#endif
    return from_malloc(capacity);
}

void to_system(Block* block) {
#ifdef ENTRENAR_MMAP
    if (block->mapped) {
        munmap(block->base, block->mapped);
        return;
    }
#endif
    std::free(block->base);
}

size_t default_limit() {
#ifdef _SC_PHYS_PAGES
    const long pages = sysconf(_SC_PHYS_PAGES);
    if (pages > 0) return static_cast<size_t>(pages) / 8 * page_size();
#endif
    return size_t{1} << 30;
}

}  // namespace

// ---- the pool ------------------------------------------------------------------------------------------------------

Pool& Pool::instance() {
    // Never destroyed: arrays outlive static objects when the interpreter exits.
    static Pool* const pool = [] {
        Pool* made = new Pool;
#ifdef ENTRENAR_MMAP
        // A fork while another thread holds the mutex would leave it locked in the child for ever.
        pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                       [] { instance().mutex_.unlock(); });
#endif
        return made;
    }();
    return *pool;
}

Pool::Pool() { counts_.limit = default_limit(); }

// The class of a size of at least kPooled, and the bytes its blocks have: the size rounded up to 1/8 of a power of two.
int Pool::size_class(size_t size, size_t* capacity) {
    int exponent = 16;
    while (exponent < 47 && (size >> (exponent + 1))) ++exponent;
    const size_t step = size_t{1} << (exponent - 3);
    const size_t steps = (size + step - 1) / step;  // 8 to 16; 16 is the first class of the next power of two
    *capacity = steps * step;
    return (exponent - 16) * kSteps + static_cast<int>(steps) - kSteps;
}

void Pool::unlink(Block* block) {
    (block->newer ? block->newer->older : newest_) = block->older;
    (block->older ? block->older->newer : oldest_) = block->newer;
    size_t capacity;
    Block*& top = tops_[size_class(block->capacity, &capacity)];
    (block->above ? block->above->below : top) = block->below;
    if (block->below) block->below->above = block->above;
    counts_.idle -= block->capacity;
}

Block* Pool::take(size_t capacity, int size_class) {
    Block* block = tops_[size_class];
    ++(block ? counts_.hits : counts_.misses);
    counts_.live += capacity;
    if (block) {
        unlink(block);
        counts_.peak = std::max(counts_.peak, counts_.live);
    }
    return block;
}

void Pool::keep(Block* block) {
    size_t capacity;
    Block*& top = tops_[size_class(block->capacity, &capacity)];
    block->newer = block->above = nullptr;
    block->older = newest_;
    block->below = top;
    if (top) top->above = block;
    (newest_ ? newest_->newer : oldest_) = block;
    newest_ = top = block;
    counts_.idle += block->capacity;
}

// Takes out the blocks freed longest ago until at most `allowed` idle bytes are left: a chain by `older`.
Block* Pool::evict(size_t allowed) {
    Block* chain = nullptr;
    while (counts_.idle > allowed) {
        Block* block = oldest_;
        unlink(block);
        block->older = chain;
        chain = block;
    }
    return chain;
}

void Pool::give_back(Block* blocks) {
    while (blocks) {
        Block* next = blocks->older;
        to_system(blocks);
        blocks = next;
    }
}

void* Pool::allocate(size_t size, bool zeroed) {
    if (size < kPooled) {
        Block* block = from_malloc(size);
        if (block && zeroed) std::memset(block->data(), 0, size);
        return block ? block->data() : nullptr;
    }
    if (size >> 47) return nullptr;  // beyond any address space, and beyond the classes
    size_t capacity;
    const int index = size_class(size, &capacity);
    Block *block, *evicted = nullptr;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        block = take(capacity, index);
        if (!block) {
            // Growing past the peak for want of the right size: idle blocks pay for it, but for an eighth of the peak,
            // which spares a loop whose sizes differ from phase to phase from changing all of them in every round.
            const size_t peak = std::max(counts_.peak, counts_.live);
            const size_t bound = peak + peak / 8;
            evicted = evict(bound - counts_.live);
        }
    }
    give_back(evicted);
    if (block) {
        if (zeroed) std::memset(block->data(), 0, size);
        return block->data();
    }
    block = from_system(capacity);
    if (!block) {
        shrink(0);
        block = from_system(capacity);
    }
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!block) {
            counts_.live -= capacity;
            return nullptr;
        }
        counts_.peak = std::max(counts_.peak, counts_.live);  // only now: what could not be had is no peak
    }
    if (zeroed && !block->mapped) std::memset(block->data(), 0, size);  // what is mapped is zero
    return block->data();
}

void* Pool::reallocate(void* data, size_t size) {
    if (!data) return allocate(size, false);
    Block* old = Block::of(data);
    size_t capacity = size;
    if (size >= kPooled && !(size >> 47)) size_class(size, &capacity);
    if (capacity == old->capacity) return data;
    void* moved = allocate(size, false);
    if (!moved) return nullptr;
    std::memcpy(moved, data, std::min(size, old->capacity));
    release(data);
    return moved;
}

void Pool::release(void* data) {
    if (!data) return;
    Block* block = Block::of(data);
    if (block->capacity < kPooled) {
        std::free(block->base);
        return;
    }
    Block* evicted;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        counts_.live -= block->capacity;
        keep(block);
        evicted = evict(enabled_ ? counts_.limit : 0);
    }
    give_back(evicted);
}

Counts Pool::counts() {
    std::lock_guard<std::mutex> lock(mutex_);
    return counts_;
}

void Pool::shrink(size_t allowed) {
    Block* evicted;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        evicted = evict(allowed);
    }
    give_back(evicted);
}

void Pool::set_limit(size_t bytes) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        counts_.limit = bytes;
    }
    shrink(bytes);
}

void Pool::trim() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        counts_.peak = counts_.live;
    }
    shrink(0);
}

void Pool::enable(bool on) {
    enabled_ = on;
    if (!on) shrink(0);
}

}  // namespace entrenar
