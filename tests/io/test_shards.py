"""Folders of weights: what is read, every way in which index and shards disagree (case 140), saving, crashes."""

import json
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import safetensors.numpy

import entrenar as en
from entrenar.io import ASIDE, DataError, open_weights, save_tensors, save_weights, shards

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"


def arrays():
    rng = np.random.default_rng(1)
    return {
        "head": rng.normal(size=(4, 5)).T,
        "norm": rng.normal(size=3).astype(np.float16),
        "embed": rng.normal(size=(5, 4)).astype(np.float32),
        "mlp": rng.normal(size=(2, 3, 4)).astype(en.bfloat16),
    }


@pytest.fixture
def sharded(tmp_path):
    """head and norm in the first shard, embed and mlp in the second."""
    folder = tmp_path / "model"
    written = save_weights(folder, arrays(), max_shard_bytes=170)
    assert [path.name for path in written] == [ONE, TWO, INDEX]
    return folder


def change_index(folder, change):
    index = json.loads((folder / INDEX).read_text())
    change(index)
    (folder / INDEX).write_text(json.dumps(index))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def assert_holds(folder, expected):
    with open_weights(folder) as weights:
        assert set(weights) == set(expected) and len(weights) == len(expected)
        for name, array in expected.items():
            assert weights[name].dtype == weights.entry(name).dtype == array.dtype
            assert weights[name].shape == weights.entry(name).shape == array.shape
            assert weights[name].tobytes() == array.tobytes()


def test_one_file(tmp_path):
    assert save_weights(tmp_path, arrays()) == [tmp_path / "model.safetensors"]
    assert names(tmp_path) == ["model.safetensors"]
    assert_holds(tmp_path, arrays())
    with safetensors.safe_open(tmp_path / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}
        assert set(file.keys()) == set(arrays())
        np.testing.assert_array_equal(file.get_tensor("head"), arrays()["head"])


def test_shards_and_their_index_are_in_hugging_faces_layout(sharded):
    assert names(sharded) == sorted([ONE, TWO, INDEX])
    assert json.loads((sharded / INDEX).read_text()) == {
        "metadata": {"total_size": 160 + 6 + 80 + 48},
        "weight_map": {"head": ONE, "norm": ONE, "embed": TWO, "mlp": TWO},
    }
    assert_holds(sharded, arrays())
    for name in (ONE, TWO):
        with safetensors.safe_open(sharded / name, "np") as file:
            assert file.metadata() == {"format": "pt"}
            for tensor in file.keys():  # noqa: SIM118 (no mapping)
                assert file.get_tensor(tensor).tobytes() == arrays()[tensor].tobytes()


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (294, [["head", "norm", "embed", "mlp"]]),
        (293, [["head", "norm", "embed"], ["mlp"]]),
        (246, [["head", "norm", "embed"], ["mlp"]]),
        (245, [["head", "norm"], ["embed", "mlp"]]),
        (159, [["head"], ["norm", "embed", "mlp"]]),
        (133, [["head"], ["norm", "embed"], ["mlp"]]),
        (1, [["head"], ["norm"], ["embed"], ["mlp"]]),
    ],
)
def test_a_shard_takes_tensors_in_order_up_to_the_limit(tmp_path, limit, expected):
    save_weights(tmp_path, arrays(), max_shard_bytes=limit)
    found = [sorted(file) for file in open_weights(tmp_path).files.values()]
    assert found == [sorted(part) for part in expected]
    assert_holds(tmp_path, arrays())


def test_tensors_metadata_and_what_is_refused(tmp_path):
    save_weights(tmp_path, {"t": en.ones(2, 3)}, {"format": "np", "made": "here"})
    weights = open_weights(tmp_path)
    np.testing.assert_array_equal(weights["t"], np.ones((2, 3)))
    assert weights.metadata == {"format": "np", "made": "here"}
    with pytest.raises(KeyError, match="Did you mean 't'"):
        weights["tt"]
    for limit in (0, -1, 1.5, True, "5GB"):
        with pytest.raises(ValueError, match="max_shard_bytes must be an integer >= 1"):
            save_weights(tmp_path / "new", arrays(), max_shard_bytes=limit)
    tied = np.ones((2, 3))
    with pytest.raises(ValueError, match="'wte' and 'head' are one array"):
        save_weights(tmp_path / "new", {"wte": tied, "other": np.ones((2, 3)), "head": tied[:]})
    with pytest.raises(TypeError, match="'a' is no array"):
        save_weights(tmp_path / "new", {"a": object()})
    with pytest.raises(TypeError, match="metadata 'step'"):
        save_weights(tmp_path / "new", arrays(), {"step": 3})
    assert not (tmp_path / "new").exists()
    save_weights(tmp_path / "new", {"a": tied, "row": tied[:1], "transposed": tied.T})  # views of one array: case 138
    assert_holds(tmp_path / "new", {"a": tied, "row": tied[:1], "transposed": tied.T})


def test_everything_wrong_with_a_folder_is_one_error(sharded):
    """Case 140: stale entry, extra shard, missing shard, a tensor that its shard lacks, one that the index lacks."""

    def spoil(index):
        index["weight_map"]["gone"] = "model-00003-of-00003.safetensors"
        index["weight_map"]["stale"] = ONE
        del index["weight_map"]["norm"]
        index["weight_map"]["mlp"] = ONE

    change_index(sharded, spoil)
    save_tensors(sharded / "model-00007-of-00009.safetensors", {"x": np.ones(1)})
    save_tensors(sharded / "model.safetensors", {"embed": np.ones(1)})
    with pytest.raises(DataError) as caught:
        open_weights(sharded)
    assert str(caught.value).splitlines() == [
        f"{sharded}: 7 faults:",
        f"  model.safetensors and {INDEX} are both there: remove the one that is not the model",
        "  model-00003-of-00003.safetensors is missing, which the index names",
        "  model-00007-of-00009.safetensors is a shard that the index does not name",
        f"  'mlp' is not in {ONE}, where the index places it",
        f"  'stale' is not in {ONE}, where the index places it",
        f"  'norm' is in {ONE}, but the index does not name it",
        f"  'mlp' is in {TWO}, but the index places it in {ONE}",
    ]
    assert caught.value.exit_status == 3


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / TWO).unlink(), f"{TWO} is missing, which the index names"),
        (lambda f: shutil.copy(f / TWO, f / "model-00003-of-00003.safetensors"), "is a shard that the index does not"),
        (lambda f: save_tensors(f / TWO, {"mlp": np.ones(1)}), f"'embed' is not in {TWO}, where the index places it"),
        (
            lambda f: save_tensors(f / TWO, {n: np.ones(1) for n in ("mlp", "embed", "more")}),
            f"'more' is in {TWO}, but the index does not name it",
        ),
        (lambda f: save_tensors(f / "model.safetensors", {}), "model.safetensors and .* are both there"),
        (lambda f: (f / INDEX).unlink(), f"{INDEX} is missing, which says what is in {ONE}, {TWO}"),
        (lambda f: (f / ONE).write_bytes((f / ONE).read_bytes() + b"x"), f": {ONE}: .*1 bytes are left over"),
        (lambda f: (f / INDEX).write_text("{"), "the index is not JSON"),
        (lambda f: (f / INDEX).write_text('{"weight_map": {"a": "b", "a": "c"}}'), "the index has the key 'a' twice"),
        (lambda f: (f / INDEX).write_text("[]"), "the index must be a JSON object"),
        (lambda f: (f / INDEX).write_text("{}"), "weight_map must map names"),
        (lambda f: (f / INDEX).write_text('{"weight_map": {}}'), "weight_map must map names"),
    ],
)
def test_each_fault_alone_is_found(sharded, spoil, message):
    spoil(sharded)
    with pytest.raises(DataError, match=message) as caught:
        open_weights(sharded)
    assert str(caught.value).startswith(str(sharded)) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["../other.safetensors", "/x.safetensors", "a/b.safetensors", "a\\b.safetensors", 3])
def test_an_index_cannot_point_out_of_its_folder(sharded, name):
    save_tensors(sharded.parent / "other.safetensors", {"embed": np.ones(1)})
    change_index(sharded, lambda index: index["weight_map"].update(embed=name))
    with pytest.raises(DataError, match=r"the file of 'embed' must be a \*\.safetensors name in this folder"):
        open_weights(sharded)


def test_a_shard_beside_a_single_file_is_refused(tmp_path):
    save_weights(tmp_path, arrays())
    save_tensors(tmp_path / ONE, {"x": np.ones(1)})
    with pytest.raises(DataError, match=f"{ONE} is a shard beside model.safetensors"):
        open_weights(tmp_path)


def test_other_files_are_left_alone(sharded):
    for name in ("adapter_model.safetensors", "optimizer.safetensors", "pytorch_model.bin", "config.json"):
        (sharded / name).write_bytes(b"not looked at")
    assert_holds(sharded, arrays())


def test_folders_without_weights(tmp_path):
    with pytest.raises(DataError, match="nowhere: no such folder"):
        open_weights(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"no weights: expected model\.safetensors, or"):
        open_weights(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    with pytest.raises(DataError, match=r"its only weights are pytorch_model\.bin: a pickle, .*save_pretrained"):
        open_weights(tmp_path)
    with pytest.raises(DataError, match=r"pytorch_model\.bin: is a file, not a folder"):
        open_weights(tmp_path / "pytorch_model.bin")


@pytest.mark.parametrize("first", [1, 100, 170, 1000])
@pytest.mark.parametrize("second", [1, 100, 170, 1000])
def test_a_save_replaces_an_older_one_of_any_shape_and_keeps_other_files(tmp_path, first, second):
    save_weights(tmp_path, {name: np.zeros_like(array) for name, array in arrays().items()}, max_shard_bytes=first)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "adapter_model.safetensors").write_text("x")
    written = save_weights(tmp_path, arrays(), max_shard_bytes=second)
    assert names(tmp_path) == sorted([*(path.name for path in written), "config.json", "adapter_model.safetensors"])
    assert_holds(tmp_path, arrays())


def test_weights_can_be_saved_over_the_files_that_they_are_mapped_from(sharded):
    weights = open_weights(sharded)
    save_weights(sharded, weights, max_shard_bytes=100)
    assert_holds(sharded, arrays())
    assert weights["head"].tobytes() == arrays()["head"].tobytes()


@pytest.mark.parametrize("limit", [170, 1000])
def test_a_failed_save_leaves_the_old_set_and_nothing_else(sharded, monkeypatch, limit):
    done = []

    def fails_at_the_last_file(file, start, part):
        if "mlp" in part:
            raise OSError("disk full")
        done.append(part)
        file.write(start)

    monkeypatch.setattr(shards, "write", fails_at_the_last_file)
    with pytest.raises(OSError, match="disk full"):
        save_weights(sharded, arrays(), max_shard_bytes=limit)
    assert len(done) == (limit == 170)
    assert names(sharded) == sorted([ONE, TWO, INDEX])
    assert_holds(sharded, arrays())


STEPS = [(170, 170), (170, 1000), (1000, 170), (170, 100), (1000, 1000)]


@pytest.mark.parametrize(("first", "second"), STEPS)
def test_a_stop_at_any_step_of_putting_in_place_leaves_old_new_or_a_refusal(tmp_path, monkeypatch, first, second):
    """Every rename and removal in turn is where the process ends: no state may read as a mixture of the two sets."""
    old = {name: np.zeros_like(array) for name, array in arrays().items()}

    class Killed(BaseException):
        pass

    outcomes = []
    for end in range(100):
        folder = tmp_path / str(end)
        save_weights(folder, old, max_shard_bytes=first)
        left = [end]

        def counted(method, left=left):
            def run(self, *args, **kwargs):
                if left[0] == 0:
                    raise Killed
                left[0] -= 1
                return method(self, *args, **kwargs)

            return run

        with monkeypatch.context() as patch:
            for method in ("replace", "unlink"):
                patch.setattr(shards.Path, method, counted(getattr(shards.Path, method)))
            patch.setattr(shards.shutil, "rmtree", lambda *args, **kwargs: None)  # a killed process tidies nothing
            try:
                save_weights(folder, arrays(), max_shard_bytes=second)
                killed = False
            except Killed:
                killed = True
        try:
            with open_weights(folder) as weights:
                values = {name: array.tobytes() for name, array in weights.items()}
            outcomes.append("old" if values == {n: a.tobytes() for n, a in old.items()} else "new")
            assert outcomes[-1] == "old" or values == {n: a.tobytes() for n, a in arrays().items()}
        except DataError:
            outcomes.append("refused")
        assert any(name.startswith(ASIDE) for name in names(folder))
        save_weights(folder, arrays(), max_shard_bytes=second)  # the next save clears up
        assert_holds(folder, arrays())
        assert not any(name.startswith(ASIDE) for name in names(folder))
        if not killed:
            break
    assert outcomes[0] == "old" and outcomes[-1] == "new"
    assert outcomes == sorted(outcomes, key=["old", "refused", "new"].index)
    assert "refused" not in outcomes or (first, second) != (1000, 1000)


WRITER = """
import sys
import numpy as np
from entrenar.io import save_weights
i = 0
while True:
    save_weights(sys.argv[1], {f"t{k}": np.full(50_000, i, np.float32) for k in range(4)}, max_shard_bytes=400_000)
    i += 1
    print(i, flush=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.004, 0.013])
def test_a_kill_leaves_one_whole_set_or_a_refusal(tmp_path, delay):
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
    process.stdout.readline()
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    try:
        weights = open_weights(tmp_path)
    except DataError:
        return  # between two renames
    assert len({float(x) for array in weights.values() for x in (array[0], array[-1])}) == 1
