// The threads of the kernels' pool find each other here: who has nothing to do looks for work for a moment before it
// sleeps, as waking a sleeper takes longer than many a kernel.  No Python below the bindings.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "bindings.hpp"

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace py = pybind11;

namespace {

void rest() {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_pause();
#else
    std::this_thread::yield();
#endif
}

// One leader gives out jobs, one at a time; helpers take part in those they come to in time.
class Team {
  public:
    Team(int64_t patience_us, int64_t delay_us) : patience_(patience_us), delay_(delay_us) {}

    // Helpers: the number of a job after `seen`, once there is one.  Who was inside the last one leaves it here,
    // without the GIL: the leader that sees it must find the GIL free, as waiting for it means to sleep and be woken.
    uint64_t wait(uint64_t seen, bool leaving) {
        py::gil_scoped_release free;
        if (leaving) inside_--;
        if (watch(patience_, [&] { return job_ != seen; })) {
            watch(delay_, [] { return false; });  // for the same reason: until the leader computes without the GIL
            return job_;
        }
        std::unique_lock<std::mutex> lock(mutex_);
        sleepers_++;
        started_.wait(lock, [&] { return job_ != seen; });
        sleepers_--;
        return job_;
    }

    // Helpers: whether the job still needs somebody; who got in must leave.
    bool enter() {
        inside_++;
        if (open_) return true;
        inside_--;
        return false;
    }

    // The leader: a new job begins.
    void start() {
        open_ = true;
        job_++;
        if (sleepers_ == 0) return;
        std::lock_guard<std::mutex> lock(mutex_);  // not between a helper's last look and its sleep
        started_.notify_all();
    }

    // The leader: nobody comes in any more, and those who are inside leave before this returns.
    void finish() {
        open_ = false;
        if (inside_ == 0) return;
        py::gil_scoped_release free;
        while (!watch(patience_, [&] { return inside_ == 0; }))
            std::this_thread::sleep_for(std::chrono::microseconds(50));
    }

  private:
    template <class Condition>
    static bool watch(std::chrono::microseconds time, Condition holds) {
        const auto end = std::chrono::steady_clock::now() + time;
        do
            for (int i = 0; i < 16; i++) {
                if (holds()) return true;
                rest();
            }
        while (std::chrono::steady_clock::now() < end);
        return holds();
    }

    const std::chrono::microseconds patience_, delay_;
    std::atomic<uint64_t> job_{0};
    std::atomic<int> inside_{0}, sleepers_{0};
    std::atomic<bool> open_{false};
    std::mutex mutex_;
    std::condition_variable started_;
};

}  // namespace

void bind_team(py::module_& module) {
    py::class_<Team>(module, "Team")
        .def(py::init<int64_t, int64_t>())
        .def("wait", &Team::wait)
        .def("enter", &Team::enter)
        .def("start", &Team::start)
        .def("finish", &Team::finish);
}
