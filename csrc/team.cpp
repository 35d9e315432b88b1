// The threads of the kernels' pool find each other here.
#include "team.hpp"

#include <thread>

#include "bindings.hpp"

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace py = pybind11;

namespace entrenar {
namespace {

void rest() {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_pause();
#else
    std::this_thread::yield();
#endif
}

template <class Condition>
bool watch(std::chrono::microseconds time, Condition holds) {
    const auto end = std::chrono::steady_clock::now() + time;
    do
        for (int i = 0; i < 16; i++) {
            if (holds()) return true;
            rest();
        }
    while (std::chrono::steady_clock::now() < end);
    return holds();
}

}  // namespace

uint64_t Team::wait(uint64_t seen, bool leaving) {
    if (leaving) leave();
    for (;;) {
        const auto started = [&] { return number_ != seen; };
        const bool at_once = watch(patience_, started);
        if (!at_once) {
            std::unique_lock<std::mutex> lock(mutex_);
            sleepers_++;
            started_.wait(lock, started);
            sleepers_--;
        }
        seen = number_;
        if (!enter()) continue;
        // inside, the job can't end; if it is one in Python, `enter` is asked again with the GIL
        Job* const job = job_;
        if (job) job->run();
        leave();
        if (job) continue;
        if (at_once) watch(delay_, [] { return false; });  // until the leader computes without the GIL
        return seen;
    }
}

bool Team::enter() {
    inside_++;
    if (open_) return true;
    leave();
    return false;
}

void Team::start(Job* job) {
    job_ = job;
    open_ = true;
    number_++;
    if (sleepers_ == 0) return;
    std::lock_guard<std::mutex> lock(mutex_);  // not between a helper's last look and its sleep
    started_.notify_all();
}

bool Team::close() {
    open_ = false;
    return inside_ == 0;
}

void Team::join() {
    while (!watch(patience_, [&] { return inside_ == 0; })) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace entrenar

using entrenar::Job;
using entrenar::Team;

void bind_team(py::module_& module) {
    py::class_<Job>(module, "Job").def("run", &Job::run, py::call_guard<py::gil_scoped_release>());
    py::class_<Team>(module, "Team")
        .def(py::init<int64_t, int64_t>())
        .def("wait", &Team::wait, py::call_guard<py::gil_scoped_release>())
        .def("enter", &Team::enter)
        .def("start", [](Team& team) { team.start(); })
        .def("finish",
             [](Team& team) {
                 if (team.close()) return;
                 py::gil_scoped_release free;
                 team.join();
             })
        .def(
            "carry_out",
            [](Team& team, Job& job) {
                team.start(&job);
                job.run();
                team.close();
                team.join();
            },
            py::call_guard<py::gil_scoped_release>());
}
