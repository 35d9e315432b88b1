"""Atomic files and folders, safetensors (cases 135, 137, 138)."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import entrenar as en
from entrenar.io import DataError, atomic_folder, atomic_write, load_tensors, save_tensors


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "f"
    atomic_write(path, "old")

    def broken(file):
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        atomic_write(path, broken)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_folder_appears_whole_and_replaces_an_older_one(tmp_path):
    target = tmp_path / "step"
    for text in ("one", "two"):
        with atomic_folder(target) as folder:
            (folder / "a").write_text(text)
            assert not (target / "a").exists() or (target / "a").read_text() == "one"
    assert (target / "a").read_text() == "two"

    def stopped_half_way():
        with atomic_folder(target) as folder:
            (folder / "a").write_text("three")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        stopped_half_way()
    assert (target / "a").read_text() == "two"
    assert [p.name for p in tmp_path.iterdir()] == ["step"]


WRITER = """
import sys
from pathlib import Path
from entrenar.io import atomic_folder
root, i = Path(sys.argv[1]), 0
while True:
    with atomic_folder(root / f"step-{i}") as folder:
        (folder / "a").write_bytes(bytes([i % 256]) * 100_000)
        (folder / "b").write_bytes(bytes([i % 256]) * 100_000)
    i += 1
    print(i, flush=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.003, 0.011])
def test_a_kill_at_any_moment_leaves_only_whole_folders(tmp_path, delay):
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
    process.stdout.readline()
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    steps = list(tmp_path.glob("step-*"))
    assert steps
    for step in steps:
        assert (step / "a").read_bytes() == (step / "b").read_bytes()
        assert len((step / "a").read_bytes()) == 100_000


def test_arrays_round_trip_exactly(tmp_path):
    path = tmp_path / "m.safetensors"
    rng = np.random.default_rng(0)
    arrays = {
        "transposed": rng.normal(size=(3, 4)).T,
        "row": rng.normal(size=(4, 4))[:1],
        "scalar": np.float32(3).reshape(()),
        "empty": np.zeros((0, 3), np.int64),
        "bf16": rng.normal(size=5).astype(en.bfloat16),
        "odd": np.arange(3, dtype=np.uint8),
        "f32": rng.normal(size=2).astype(np.float32),
        "bool": np.array([True, False]),
        "f16": np.ones(3, np.float16),
        "tensor": en.ones(2, 2),
    }
    save_tensors(path, arrays, {"step": "3"})
    found, metadata = load_tensors(path)
    assert metadata == {"step": "3"}
    assert set(found) == set(arrays)
    for name, value in arrays.items():
        value = value.data if isinstance(value, en.Tensor) else value
        assert found[name].dtype == value.dtype
        assert found[name].shape == value.shape
        assert found[name].tobytes() == np.ascontiguousarray(value).tobytes()
        assert found[name].flags.writeable


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b + b"x",
        lambda b: b[:-1],
        lambda b: b[:5],
        lambda b: b"\xff" * 8 + b[8:],
        lambda b: b[:8] + b"!" + b[9:],
    ],
)
def test_a_damaged_file_is_refused_with_its_name(tmp_path, change):
    path = tmp_path / "m.safetensors"
    save_tensors(path, {"a": np.ones(3)})
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=r"m\.safetensors"):
        load_tensors(path)


def test_what_cannot_be_saved(tmp_path):
    with pytest.raises(TypeError, match="'a'"):
        save_tensors(tmp_path / "m", {"a": object()})
    with pytest.raises(TypeError, match="'step'"):
        save_tensors(tmp_path / "m", {"a": np.ones(1)}, {"step": 3})
    assert list(tmp_path.iterdir()) == []
