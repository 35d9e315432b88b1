"""The memory pool: what it hands out, what it keeps, and that nobody else notices."""

import gc
import os
import subprocess
import sys
import textwrap
import threading

import ml_dtypes
import numpy as np
import pytest

from entrenar.kernels import memory

KIB, MIB = 1 << 10, 1 << 20
HUGE_PAGE = 2 * MIB
get_handler_name = np._core.multiarray.get_handler_name

needs_pool = pytest.mark.skipif(not memory.available(), reason="the C++ extension was not built")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")


@pytest.fixture
def pool():
    """The pool, switched on, with nothing idle; what other tests hold is live in it.  Its settings are put back."""
    limit = memory.stats().limit
    gc.collect()
    memory.enable(True)
    memory.trim()
    yield memory
    memory.set_limit(limit)
    memory.enable(True)
    memory.trim()


def block(size):
    return memory.empty(size, np.uint8)


def run(code, first="", **env):
    """What code prints in a fresh interpreter, on either channel.  first: what runs before anything is imported."""
    imports = "import os\nimport numpy as np\nfrom entrenar.kernels import memory\n"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", first + imports + textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
        timeout=60,
        env=os.environ | env,
    ).stdout.strip()


# ---- arrays, with a pool or without ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), 0, 5, (0, 3), (3, 5), [2, 3], 1 << 20, (3, 1 << 18)])
@pytest.mark.parametrize("dtype", [np.float32, "f8", np.dtype("i2"), bool, complex, object, ml_dtypes.bfloat16])
def test_empty_is_what_numpy_makes(shape, dtype):
    got, expected = memory.empty(shape, dtype), np.empty(shape, dtype)
    assert type(got) is np.ndarray
    assert (got.shape, got.dtype, got.strides) == (expected.shape, expected.dtype, expected.strides)
    assert got.flags.c_contiguous and got.flags.owndata and got.flags.writeable


def test_empty_like_is_in_c_order():
    x = np.zeros((300, 500), np.float32, order="F")
    y = memory.empty_like(x)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    assert y.flags.c_contiguous


@pytest.mark.parametrize("shape", [-1, (3, -1), (-2, -(1 << 20)), (1 << 62, 4), (1 << 50,), (1 << 44,), 2.5, "ab"])
def test_what_numpy_refuses(shape):
    def refusal(make):
        with pytest.raises((ValueError, MemoryError, TypeError)) as caught:
            make(shape, np.float32)
        return caught.type, str(caught.value)

    assert refusal(memory.empty) == refusal(np.empty)


def test_out_of_memory_names_the_size():
    before = memory.stats()
    with pytest.raises(MemoryError, match=r"64\.0 TiB"):
        memory.empty(1 << 44, np.float32)
    after = memory.stats()
    assert (after.live, after.peak) == (before.live, before.peak)


def test_a_limit_below_zero_is_refused():
    with pytest.raises(ValueError, match="-1 bytes"):
        memory.set_limit(-1)


def test_without_the_extension(monkeypatch):
    code = """
    assert not memory.available()
    assert memory.empty is np.empty
    assert memory.stats() == (0, 0, 0, 0, 0, 0)
    memory.set_limit(5), memory.trim(), memory.enable(False)
    with memory.pooled():
        print(np._core.multiarray.get_handler_name())
    try:
        memory.enable(True)
    except RuntimeError as e:
        print(e)
    """
    hidden = "import sys\nsys.modules['entrenar.kernels.cpp._native'] = None\n"
    handler, refusal = run(code, first=hidden).splitlines()
    assert handler == "default_allocator"
    assert "extension was not built" in refusal


# ---- the pool --------------------------------------------------------------------------------------------------------


@needs_pool
@pytest.mark.parametrize("size", [64 * KIB, 64 * KIB + 1, 100_000, MIB, 3 * MIB - 1, 2 * MIB, 5 * MIB + 3, 64 * MIB])
def test_blocks_are_aligned_and_waste_an_eighth_at_most(pool, size):
    before = pool.stats()
    x = block(size)
    x[:] = 7
    assert x.ctypes.data % (HUGE_PAGE if size >= HUGE_PAGE and sys.platform == "linux" else 64) == 0
    grown = pool.stats().live - before.live
    assert size <= grown <= size * 9 / 8
    assert pool.stats().misses == before.misses + 1
    address = x.ctypes.data
    del x
    assert pool.stats().idle == grown
    assert block(size).ctypes.data == address
    assert pool.stats().hits == before.hits + 1


@needs_pool
def test_small_arrays_are_left_to_numpy(pool):
    before = pool.stats()
    x = block(64 * KIB - 1)
    assert get_handler_name(x) == "default_allocator"
    assert pool.stats() == before


@needs_pool
def test_peak_starts_anew_with_trim(pool):
    live = pool.stats().live
    x = block(8 * MIB)
    del x
    assert pool.stats().peak == live + 8 * MIB
    pool.trim()
    assert pool.stats().peak == live
    assert pool.stats().idle == 0


@needs_pool
def test_a_reused_array_is_filled_without_page_faults(pool):
    resource = pytest.importorskip("resource")

    def faults():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        block(3 * MIB)[:] = 1  # a huge page at most, and 4 KiB pages
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    assert faults() > 100
    assert min(faults() for _ in range(5)) < 10


@needs_pool
def test_the_limit_holds_and_the_block_freed_longest_ago_goes_first(pool):
    pool.set_limit(20 * MIB)
    arrays = [block(size * MIB) for size in (4, 5, 6, 7, 8)]
    addresses = {x.nbytes: x.ctypes.data for x in arrays}
    while arrays:
        arrays.pop(0)
        assert pool.stats().idle <= 20 * MIB
    assert pool.stats().idle == (7 + 8) * MIB
    kept = block(8 * MIB)
    assert kept.ctypes.data == addresses[8 * MIB]
    pool.set_limit(3 * MIB)
    assert pool.stats().idle == 0
    del kept
    assert pool.stats().idle == 0, "a block over the limit is not kept"


@needs_pool
def test_alternating_sizes_do_not_pile_up(pool):
    live = pool.stats().live
    for size in [*range(4, 60)] * 3:
        block(size * MIB)
    stats = pool.stats()
    assert stats.live == live
    assert stats.idle <= (stats.peak + stats.peak // 8) - live


@needs_pool
@pytest.mark.skipif(sys.platform != "linux", reason="kibibytes on Linux alone")
def test_resident_memory_stays_near_the_peak_of_what_is_live():
    code = """
    import resource
    def resident():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    base = resident()
    for round in range(3):
        for size in (90, 40, 70, 30, 100, 20, 60):
            kept = [memory.empty(size << 18, np.float32) for _ in range(200 // size)]
            for x in kept:
                x[:] = 1
            del kept, x
    print((resident() - base) / memory.stats().peak)
    """
    assert float(run(code)) < 1.3


@needs_pool
def test_pages_that_change_blocks_hold_what_is_written(pool):
    """Misses past the peak, with blocks of other sizes idle: their pages move."""
    kept = []
    for i in range(200):
        size = (3 + i * 7 % 23) * MIB + 512 * KIB * (i % 2)
        x = block(size)
        x[:] = i % 251
        kept.append((i % 251, x))
        if len(kept) > 5:
            value, old = kept.pop(i % 3)
            assert (old == value).all()
    assert all((x == value).all() for value, x in kept)


@needs_pool
def test_zeros_are_zero_however_the_memory_was_used(pool):
    with pool.pooled():
        for i in range(40):
            x = np.zeros((2 + i * 5 % 11, MIB), np.uint8)
            assert get_handler_name(x) == "entrenar_pool"
            assert not x.any()
            x[:] = 255
        assert not np.zeros(100).any()


@needs_pool
def test_resize_keeps_the_content(pool):
    x = memory.empty(1 << 20, np.int32)
    x[:] = np.arange(x.size)
    for size in (3 << 20, 1 << 21, 100, 5, 1 << 16, (1 << 16) + 1, 1 << 20):
        kept = min(size, x.size)
        x.resize(size, refcheck=False)
        assert (x[:5] == np.arange(5)).all() and x[kept - 1] in (kept - 1, 0)
        assert not x[kept:].any()
    live = pool.stats().live
    del x
    assert pool.stats().live == live - (4 << 20)


@needs_pool
def test_the_off_switch(pool):
    x = block(4 * MIB)
    del x
    pool.enable(False)
    before = pool.stats()
    assert before.idle == 0
    assert get_handler_name(block(4 * MIB)) == "default_allocator"
    with pool.pooled():
        assert get_handler_name() == "default_allocator"
    assert pool.stats() == before
    pool.enable(True)
    old = block(4 * MIB)
    pool.enable(False)
    del old
    assert pool.stats().idle == 0


@needs_pool
def test_the_environment_switches_it_off():
    code = "print(np._core.multiarray.get_handler_name(memory.empty(1 << 20, np.float32)))"
    assert run(code, ENTRENAR_MEMORY_POOL="0") == "default_allocator"
    assert run(code, ENTRENAR_MEMORY_POOL="1") == "entrenar_pool"


def test_another_word_in_the_environment_is_refused():
    assert "ENTRENAR_MEMORY_POOL is 'off'; expected 0" in run("", ENTRENAR_MEMORY_POOL="off")


# ---- others in the process -------------------------------------------------------------------------------------------


@needs_pool
def test_other_users_of_numpy_are_untouched(pool):
    x = block(4 * MIB)
    assert get_handler_name(x) == "entrenar_pool"
    assert get_handler_name() == "default_allocator"
    assert get_handler_name(np.empty(1 << 20)) == "default_allocator"
    with pytest.raises(MemoryError):
        block(1 << 46)
    assert get_handler_name() == "default_allocator"


@needs_pool
def test_pooled_holds_inside_and_in_this_thread(pool):
    names = []
    with pool.pooled():
        with pool.pooled():
            assert get_handler_name(np.ones(MIB) + 1) == "entrenar_pool"
        assert get_handler_name(np.ones(3)) == "entrenar_pool"
        other = threading.Thread(target=lambda: names.append(get_handler_name(np.ones(MIB))))
        other.start()
        other.join()
    assert names == ["default_allocator"]
    with pytest.raises(KeyError), pool.pooled():
        raise KeyError
    assert get_handler_name() == "default_allocator"


@needs_pool
def test_threads_free_each_others_arrays(pool):
    """Four threads swap arrays through a shared shelf; each array holds its writer's mark until it is dropped."""
    shelf, wrong = [None] * 8, []
    live = pool.stats().live

    def work(seed):
        random = np.random.default_rng(seed)
        for _ in range(300):
            size = int(random.integers(60 * KIB, 3 * MIB))
            mark = int(random.integers(256))
            x = block(size)
            x[:] = mark
            place = int(random.integers(8))
            found, shelf[place] = shelf[place], (mark, x)
            if found is not None and not (found[1] == found[0]).all():
                wrong.append(found[0])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    shelf.clear()
    assert pool.stats().live == live


@needs_pool
@needs_fork
def test_a_forked_child_uses_the_pool_while_threads_of_the_parent_do():
    code = """
    import threading, warnings
    warnings.simplefilter("ignore")  # a fork with threads, on purpose
    stop = False
    def churn():
        while not stop:
            memory.empty(1 << 20, np.float32)
    threads = [threading.Thread(target=churn) for _ in range(3)]
    for t in threads:
        t.start()
    held = memory.empty(1 << 20, np.float32)
    held[:] = 5
    failed = 0
    for i in range(30):
        child = os.fork()
        if not child:
            x = memory.empty((i + 1) << 17, np.float32)
            x[:] = 3
            memory.trim()
            held[:] = 9
            os._exit(int(not (x == 3).all()))
        failed += os.waitpid(child, 0)[1]
    stop = True
    for t in threads:
        t.join()
    print(failed, (held == 5).all())
    """
    assert run(code) == "0 True"


@needs_pool
def test_arrays_outlive_the_interpreters_end():
    code = """
    import atexit, builtins
    class Late:
        def __init__(self):
            self.x = memory.empty(1 << 20, np.float32)
        def __del__(self):
            self.x[:] = 1
            self.x = None
    builtins.kept = [Late(), memory.empty((300, 300, 300), np.float32)]
    kept[1].resize(1 << 22, refcheck=False)
    atexit.register(lambda: memory.empty(1 << 22, np.float32))
    cycle = [Late()]
    cycle.append(cycle)
    print("done")
    """
    assert run(code) == "done"
