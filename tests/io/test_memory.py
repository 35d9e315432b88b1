"""Peak resident memory of filling a model from mapped weights: the file and the model are never in memory together."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from entrenar.io import save_weights

MB = 1 << 20
STATUS = Path("/proc/self/status")
pytestmark = pytest.mark.skipif(
    not STATUS.exists() or "VmHWM" not in STATUS.read_text(), reason="needs the peak (VmHWM) that Linux counts"
)

# what is measured runs in a process of its own: VmHWM starts anew with it, ru_maxrss would begin at its parent's size
CHILD = """
import sys
from pathlib import Path
import ml_dtypes, numpy as np
from entrenar.io import load_tensors, open_weights

def peak():
    line = next(s for s in Path("/proc/self/status").read_text().splitlines() if s.startswith("VmHWM"))
    return int(line.split()[1]) * 1024

folder, way = sys.argv[1:]
base = peak()
if way == "load_tensors":
    arrays, _ = load_tensors(Path(folder) / "model.safetensors")
else:
    with open_weights(folder) as weights:
        arrays = {name: np.empty(weights.entry(name).shape, np.float32) for name in weights}
        for name, target in arrays.items():
            if way == "copy_to":
                weights.copy_to(name, target)
            elif way == "transposed":  # a Fortran-ordered target, as a layer that stores (in, out)
                arrays[name] = target = np.empty(target.shape, np.float32, order="F")
                weights.copy_to(name, target)
            else:
                target[...] = weights[name]
                if way == "release":
                    weights.release(name)
for i, name in enumerate(sorted(arrays), 1):
    assert arrays[name].flat[0] == arrays[name].flat[-1] == i, "not what was saved"
print(peak() - base)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """200 MiB of float32: 34 tensors of 4 MiB, and an embedding of 64 MiB as the last."""
    path = tmp_path_factory.mktemp("weights")
    sizes = [4] * 34 + [64]
    arrays = {f"{i:02}": np.full((size * 256, 1024), i, np.float32) for i, size in enumerate(sizes, 1)}
    assert save_weights(path, arrays) == [path / "model.safetensors"]
    yield path
    (path / "model.safetensors").unlink()


def times_the_file(folder, way):
    run = subprocess.run([sys.executable, "-c", CHILD, str(folder), way], check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return int(run.stdout) / (folder / "model.safetensors").stat().st_size


@pytest.mark.parametrize("way", ["copy_to", "transposed", "load_tensors"])
def test_loading_peaks_at_most_a_tenth_above_the_file(folder, way):
    assert 0.9 < times_the_file(folder, way) <= 1.1


def test_releasing_after_each_tensor_peaks_at_the_file_and_one_tensor(folder):
    assert times_the_file(folder, "release") <= 1 + 64 / 200 + 0.1


def test_the_measure_sees_pages_that_are_kept(folder):
    assert times_the_file(folder, "keep") > 1.8
