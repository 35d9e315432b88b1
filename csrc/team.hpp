// Threads that carry out one job after the other together.  No Python in here.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace entrenar {

// Work in pieces: every thread that comes calls `run`, which takes pieces until there are none left.
class Job {
  public:
    virtual ~Job() = default;
    virtual void run() noexcept = 0;
};

// One leader gives out jobs, one at a time; helpers take part in those they come to in time.  Who has nothing to do
// looks for work for a moment before it sleeps, as waking a sleeper takes longer than many a kernel.
class Team {
  public:
    Team(int64_t patience_us, int64_t delay_us) : patience_(patience_us), delay_(delay_us) {}

    // Helpers: the number of a job in Python after `seen`, once there is one; jobs in C++ are carried out meanwhile.
    // Who was inside the last one leaves it here, without the GIL: the leader that sees it must find the GIL free, as
    // waiting for it means to sleep and be woken.
    uint64_t wait(uint64_t seen, bool leaving);

    // Helpers: whether the job still needs somebody; who got in must leave.
    bool enter();
    void leave() { inside_--; }

    // The leader: a new job begins, in Python if there is none in C++.
    void start(Job* job = nullptr);

    // The leader: nobody comes in any more; whether nobody is inside.
    bool close();

    // The leader: wait until nobody is inside.
    void join();

  private:
    const std::chrono::microseconds patience_, delay_;
    std::atomic<uint64_t> number_{0};
    std::atomic<Job*> job_{nullptr};
    std::atomic<int> inside_{0}, sleepers_{0};
    std::atomic<bool> open_{false};
    std::mutex mutex_;
    std::condition_variable started_;
};

}  // namespace entrenar
