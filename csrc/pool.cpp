#include "pool.hpp"

#include <algorithm>
#include <cstring>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define ENTRENAR_FORKS 1
#endif

namespace entrenar {

Pool& Pool::instance() {
    // Never destroyed: arrays outlive static objects when the interpreter exits.
    static Pool* const pool = [] {
        Pool* made = new Pool;
#ifdef ENTRENAR_FORKS
        // A fork while another thread holds the mutex would leave it locked in the child for ever.
        pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                       [] { instance().mutex_.unlock(); });
#endif
        return made;
    }();
    return *pool;
}

Pool::Pool() {
    const size_t memory = physical_memory();
    counts_.limit = memory ? memory / 8 : size_t{1} << 30;
}

// The class of a size of at least kPooled, and the bytes its blocks have: the size rounded up to 1/8 of a power of two.
int Pool::size_class(size_t size, size_t* capacity) {
    int exponent = 16;
    while (exponent < 47 && (size >> (exponent + 1))) ++exponent;
    const size_t step = size_t{1} << (exponent - 3);
    const size_t steps = (size + step - 1) / step;  // 8 to 16; 16 is the first class of the next power of two
    *capacity = steps * step;
    return (exponent - 16) * kSteps + static_cast<int>(steps) - kSteps;
}

// Lowers the capacity of a block that gave pages away to what is left, rounded down to a class; false: too little.
bool Pool::settle(Block* block) {
    if (block->mapped < kHugePage) return false;
    const size_t left = static_cast<size_t>(block->end() - block->data());
    if (left >= block->capacity) return true;
    if (left < kHugePage) return false;
    size_t step = kHugePage / kSteps;
    while (left / step >= 2 * kSteps) step *= 2;
    block->capacity = left / step * step;
    cut(block, block->data() + block->capacity);
    return true;
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

void Pool::keep(Block* block, bool as_newest) {
    size_t capacity;
    Block*& top = tops_[size_class(block->capacity, &capacity)];
    block->above = nullptr;
    block->below = top;
    if (top) top->above = block;
    top = block;
    block->newer = as_newest ? nullptr : oldest_;
    block->older = as_newest ? newest_ : nullptr;
    (block->newer ? block->newer->older : newest_) = block;
    (block->older ? block->older->newer : oldest_) = block;
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

// Takes what donors have left back in, first to be evicted, up to `allowed` idle bytes; returns the others.
Block* Pool::keep_rest(Block* donors, size_t allowed) {
    Block* others = nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    allowed = std::min(allowed, enabled_ ? counts_.limit : 0);
    while (donors) {
        Block* donor = donors;
        donors = donor->older;
        if (settle(donor) && counts_.idle + donor->capacity <= allowed) {
            keep(donor, false);
        } else {
            donor->older = others;
            others = donor;
        }
    }
    return others;
}

void Pool::give_back(Block* blocks) {
    while (blocks) {
        Block* next = blocks->older;
        to_system(blocks);
        blocks = next;
    }
}

void* Pool::allocate(size_t size, bool zeroed) {
    Block* block;
    bool zero = false;
    if (size < kPooled) {
        block = from_malloc(size);
    } else if (size >> 47) {
        return nullptr;  // beyond any address space, and beyond the classes
    } else {
        block = pooled(size, &zero);
    }
    if (!block) return nullptr;
    if (zeroed && !zero) std::memset(block->data(), 0, size);
    return block->data();
}

Block* Pool::pooled(size_t size, bool* zero) {
    size_t capacity;
    const int index = size_class(size, &capacity);
    size_t allowed;  // idle bytes
    Block* evicted;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (Block* block = take(capacity, index)) return block;
        // Growing past the peak for want of the right size: idle blocks pay for it, but for an eighth of the peak,
        // which spares a loop whose sizes differ from phase to phase from changing all of them in every round.
        const size_t peak = std::max(counts_.peak, counts_.live);
        allowed = peak + peak / 8 - counts_.live;
        evicted = evict(allowed);
    }
    Block* block = from_donors(capacity, evicted);
    give_back(block ? keep_rest(evicted, allowed) : evicted);
    if (!block) {
        block = from_system(capacity);
        if (!block) {
            shrink(0);
            block = from_system(capacity);
        }
        *zero = block && block->mapped;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if (block) {
        counts_.peak = std::max(counts_.peak, counts_.live);  // only now: what can't be had makes no peak
    } else {
        counts_.live -= capacity;
    }
    return block;
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
        keep(block, true);
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
