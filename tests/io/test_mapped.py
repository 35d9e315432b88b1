"""Mapped safetensors files: views, headers that are wrong (cases 134, 135, 137, 138), the library's bytes."""

import json
import os

import numpy as np
import pytest
import safetensors
import safetensors.numpy

import entrenar as en
from entrenar.io import DataError, load_tensors, mapped, open_tensors, save_tensors


def written(path, header, data=b"", pad=0):
    """A file of a header (text, or what JSON makes of it) and the tensors' bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * pad
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def each_dtype():
    """Arrays of every dtype that the format and NumPy share, of sizes that all differ, odd ones too."""
    rng = np.random.default_rng(3)
    return {
        f"{name} array": np.frombuffer(rng.integers(0, 2, (i + 1) * dtype.itemsize).astype(np.uint8), dtype)
        for i, (name, dtype) in enumerate(mapped.dtypes().items())
    }


def test_every_dtype_is_stored_as_the_library_stores_it_and_read_back(tmp_path):
    arrays = each_dtype() | {
        "naïve": np.zeros((2, 0, 3), np.float32),
        "scalar": np.array(2.5),
        "3d": np.ones((2, 3, 4)),
    }
    save_tensors(tmp_path / "m", arrays, {"format": "pt"})
    assert (tmp_path / "m").read_bytes() == safetensors.numpy.save(arrays, {"format": "pt"})
    with open_tensors(tmp_path / "m") as file:
        assert file.metadata == {"format": "pt"}
        assert set(file) == set(arrays) and len(file) == len(arrays)
        for name, array in arrays.items():
            assert file[name].dtype == array.dtype == file.entry(name).dtype
            assert file[name].shape == array.shape == file.entry(name).shape
            assert file[name].tobytes() == array.tobytes()


def test_tensors_are_read_only_views_on_the_file(tmp_path):
    save_tensors(tmp_path / "m", {"a": np.arange(6.0).reshape(2, 3)})
    file = open_tensors(tmp_path / "m")
    assert not file["a"].flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        file["a"][0, 0] = 1
    # in place, which a mapping shows and a copy does not
    with (tmp_path / "m").open("r+b") as raw:
        raw.seek(-8, os.SEEK_END)
        raw.write(np.float64(7).tobytes())
    assert file["a"][1, 2] == 7


def test_arrays_outlive_release_and_close(tmp_path):
    save_tensors(tmp_path / "m", {"a": np.arange(5000.0), "b": np.ones(3)})
    file = open_tensors(tmp_path / "m")
    a = file["a"]
    file.release("a")
    np.testing.assert_array_equal(a, np.arange(5000.0))
    file.close()
    np.testing.assert_array_equal(a, np.arange(5000.0))
    for use in (lambda: file["a"], lambda: file.release("a")):
        with pytest.raises(ValueError, match="closed"):
            use()
    file.close()


def test_an_unknown_name_is_a_key_error_with_the_nearest(tmp_path):
    save_tensors(tmp_path / "m", {"layer.weight": np.ones(1)})
    file = open_tensors(tmp_path / "m")
    for use in (file.__getitem__, file.release, file.entry, lambda name: file.copy_to(name, np.ones(1))):
        with pytest.raises(KeyError, match=r"'layer\.wieght'.*Did you mean 'layer\.weight'"):
            use("layer.wieght")
    assert "layer.wieght" not in file and file.get("layer.wieght") is None


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F64"])
def test_a_tensor_that_is_not_aligned_is_read_correctly(tmp_path, dtype):
    """Case 137: uint8[3], then floats at byte 3."""
    kind = mapped.dtypes()[dtype]
    floats = np.array([1.5, -2.0]).astype(kind)
    size = floats.nbytes
    header = {"odd": entry("U8", [3], [0, 3]), "floats": entry(dtype, [2], [3, 3 + size])}
    for pad in range(8):
        path = written(tmp_path / "m", header, b"\1\2\3" + floats.tobytes(), pad)
        file = open_tensors(path)
        assert file["floats"].tobytes() == floats.tobytes()
        assert file["floats"].flags.aligned and not file["floats"].flags.writeable
        assert load_tensors(path)[0]["floats"].tobytes() == floats.tobytes()


def test_views_and_shared_memory_are_stored_in_c_order(tmp_path):
    """Case 138."""
    a = np.arange(12.0).reshape(3, 4)
    arrays = {"a": a, "row": a[:1], "transposed": a.T, "strided": a[::2, ::-1], "big endian": a.astype(">f8")}
    save_tensors(tmp_path / "m", arrays)
    found = safetensors.numpy.load_file(tmp_path / "m")
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


BOUNDARIES = [*range(99_992, 100_002)]


@pytest.mark.parametrize("size", BOUNDARIES)
def test_headers_of_any_size_are_read(tmp_path, size):
    """Case 134: readers that probe in blocks fail near 100,000 bytes."""
    header = json.dumps({"a": entry()}).encode()
    path = written(tmp_path / "m", header, np.float32([1, 2]).tobytes(), size - len(header))
    np.testing.assert_array_equal(open_tensors(path)["a"], np.float32([1, 2]))


def test_the_limit_of_a_header_is_100_mb_for_reader_and_writer(tmp_path, monkeypatch):
    assert mapped.LIMIT == 100_000_000
    path = tmp_path / "m"
    with path.open("wb") as file:  # sparse
        file.write((100_000_001).to_bytes(8, "little"))
        file.truncate(100_000_100)
    with pytest.raises(DataError, match="100000001 bytes, the limit is 100000000"):
        open_tensors(path)
    header = json.dumps({"a": entry()}).encode()
    monkeypatch.setattr(mapped, "LIMIT", len(header))
    assert list(open_tensors(written(path, header, bytes(8)))) == ["a"]
    with pytest.raises(DataError, match=f"{len(header) + 1} bytes, the limit is {len(header)}"):
        open_tensors(written(path, header, bytes(8), pad=1))
    monkeypatch.setattr("entrenar.io.tensors.LIMIT", 55)
    with pytest.raises(ValueError, match="56 bytes, readers accept 55"):
        save_tensors(tmp_path / "new", {"a": np.float32([1, 2])})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b + b"x", "describes 88 bytes, the file has 89: 1 bytes are left over"),
        (lambda b: b[:-1], "describes 88 bytes, the file has 87: 1 bytes are missing"),
        (lambda b: b[:70], "describes 88 bytes, the file has 70: 18 bytes are missing"),
        (lambda b: b[:40], "the header says 56 bytes, the file has 32"),
        (lambda b: b[:5], "5 bytes are too few"),
        (lambda b: b"", "0 bytes are too few"),
        (lambda b: b"\xff" * 8 + b[8:], "18446744073709551615 bytes, the limit"),
    ],
)
def test_sizes_that_disagree_are_printed(tmp_path, change, message):
    """Case 135."""
    path = tmp_path / "m.safetensors"
    save_tensors(path, {"a": np.ones(3)})
    assert path.stat().st_size == 88
    path.write_bytes(change(path.read_bytes()))
    for read in (open_tensors, load_tensors):
        with pytest.raises(DataError, match=message) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        (b"!", 0, r"not JSON: it starts with b'!'"),
        (b" {}", 0, r"not JSON: it starts with b' '"),
        (b"", 0, "not JSON"),
        (b"{", 0, "not JSON"),
        (b'{"\xff": 1}', 0, "not JSON"),
        (b'{"a":' * 100_000, 0, "not JSON"),
        (b'{"a": 1, "b": 2, "a": 3}', 0, "the header has the key 'a' twice"),
        (b'{"a": {"dtype": "F32", "shape": [2], "shape": [1], "data_offsets": [0, 8]}}', 8, "the key 'shape' twice"),
        ({"__metadata__": {"step": 3}}, 0, "__metadata__ must map text to text"),
        ({"__metadata__": "x"}, 0, "__metadata__ must map text to text"),
        ({"a": 3}, 0, "'a' must have dtype, shape and data_offsets"),
        ({"a": {"dtype": "F32", "shape": [2]}}, 8, "'a' must have"),
        ({"a": {**entry(), "more": 1}}, 8, "'a' must have"),
        ({"a": entry("BF61", [4])}, 8, "'a' has dtype 'BF61', which is not supported. Did you mean 'BF16'"),
        ({"a": entry("F4", [16])}, 8, "'a' has dtype 'F4'"),
        ({"a": entry(3)}, 8, "'a' has dtype 3"),
        ({"a": {**entry(), "shape": 2}}, 8, "the shape of 'a'"),
        ({"a": entry(shape=[-2])}, 8, "the shape of 'a'"),
        ({"a": entry(shape=[2.0])}, 8, "the shape of 'a'"),
        ({"a": entry(shape=[True, 2])}, 8, "the shape of 'a'"),
        ({"a": entry(shape=[1] * 65)}, 4, "the shape of 'a'"),
        ({"a": entry(offsets=[8, 0])}, 8, "the data_offsets of 'a'"),
        ({"a": entry(offsets=[0])}, 8, "the data_offsets of 'a'"),
        ({"a": entry(offsets=[-8, 0])}, 8, "the data_offsets of 'a'"),
        ({"a": entry(shape=[3])}, 8, r"'a', F32 of shape \[3\], needs 12 bytes, has 8"),
        ({"a": entry(shape=[0, 2**62], offsets=[0, 0])}, 0, "'a', F32"),
        ({"a": entry(), "b": entry(offsets=[4, 12])}, 12, "'b' at byte 4 overlaps 'a', which ends at 8"),
        ({"a": entry(), "b": entry()}, 8, "'b' at byte 0 overlaps 'a', which ends at 8"),
        ({"a": entry(), "b": entry(offsets=[12, 20])}, 20, "'b' at byte 12 leaves 4 bytes unused after 'a'"),
        ({"a": entry(offsets=[4, 12])}, 12, "'a' at byte 4 leaves 4 bytes unused after the header"),
    ],
    ids=lambda value: None if isinstance(value, int) else str(value)[:40],
)
def test_a_wrong_header_is_refused_for_its_fault(tmp_path, header, data, message):
    path = written(tmp_path / "m.safetensors", header, bytes(data))
    with pytest.raises(DataError, match=message) as caught:
        open_tensors(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_file_that_is_not_there_or_a_folder(tmp_path):
    with pytest.raises(DataError, match="nowhere: cannot be read: No such file"):
        open_tensors(tmp_path / "nowhere")
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        open_tensors(tmp_path)


@pytest.mark.parametrize("block", [1, 40, 1 << 20])
@pytest.mark.parametrize("shape", [(7, 5, 3), (1, 105), (105, 1), (1, 1), (), (0, 3), (3, 0)])
def test_copy_to_writes_any_view_in_blocks(tmp_path, monkeypatch, block, shape):
    monkeypatch.setattr(mapped, "BLOCK", block)
    source = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    save_tensors(tmp_path / "m", {"a": source})
    file = open_tensors(tmp_path / "m")
    for target in (
        np.full(shape, np.nan, np.float32),
        np.full(shape[::-1], np.nan, np.float32).T,
        np.full((*shape, 2), np.nan, np.float32)[..., 0],
        np.full(shape, np.nan),
        np.full(shape, np.nan, en.bfloat16),
    ):
        file.copy_to("a", target)
        assert target.tobytes() == source.astype(target.dtype).tobytes()


def test_copy_to_refuses_another_shape_and_lossy_casts(tmp_path):
    save_tensors(tmp_path / "m", {"a": np.ones((2, 3)), "i": np.ones(2, np.int64)})
    file = open_tensors(tmp_path / "m")
    with pytest.raises(DataError, match=r"'a' has shape \(2, 3\), expected \(3, 2\)"):
        file.copy_to("a", np.ones((3, 2)))
    with pytest.raises(DataError, match=r"'a' has shape \(2, 3\), expected \(3,\)"):
        file.copy_to("a", np.ones(3))
    with pytest.raises(DataError, match="'a' is float64, which is not cast to int64"):
        file.copy_to("a", np.ones((2, 3), np.int64))
    with pytest.raises(DataError, match="'i' is int64, which is not cast to float64"):
        file.copy_to("i", np.ones(2))


@pytest.mark.parametrize(
    ("arrays", "metadata", "message"),
    [
        ({"a": np.ones(1, np.complex128)}, None, "'a' is complex128, which safetensors cannot hold"),
        ({"a": np.array(["text"])}, None, "'a' is str"),
        ({"__metadata__": np.ones(1)}, None, "'__metadata__' cannot be the name"),
        ({3: np.ones(1)}, None, "3 cannot be the name"),
        ({"\ud800": np.ones(1)}, None, "not text"),
        ({"a": np.ones(1)}, {3: "x"}, "metadata 3 must be text"),
    ],
)
def test_what_the_format_cannot_hold(tmp_path, arrays, metadata, message):
    with pytest.raises(TypeError, match=message):
        save_tensors(tmp_path / "m", arrays, metadata)
    assert list(tmp_path.iterdir()) == []
