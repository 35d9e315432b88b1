"""Saving over a model that is there: the old one, the new one or a refusal, never the weights of one with the config of
the other.
"""

import dataclasses
import os
import resource
import signal

import numpy as np
import pytest

import entrenar as en
from entrenar import nn
from entrenar.io import ASIDE, DataError, shards
from entrenar.models import build, from_pretrained
from entrenar.nn import StateDictError

SIZES = dict(
    vocab_size=11,
    hidden_size=12,
    intermediate_size=20,
    num_hidden_layers=2,
    num_attention_heads=2,
    max_position_embeddings=16,
)
IDS = np.array([[1, 2, 3, 4, 5]])


@pytest.fixture
def two():
    """Models whose tensors have the same names and shapes, and whose configurations differ."""
    en.manual_seed(0)
    return build("llama", SIZES).eval(), build("llama", {**SIZES, "rope_theta": 7.0, "rms_norm_eps": 0.5}).eval()


def which(folder, models):
    """The index of the model that a folder holds; None for a folder that is refused."""
    try:
        logits = from_pretrained(folder)(IDS).data
    except DataError:
        return None
    (found,) = [n for n, model in enumerate(models) if np.array_equal(model(IDS).data, logits)]
    return found


@pytest.mark.parametrize(("first", "second"), [(None, None), (2000, 2000), (None, 2000), (2000, None)])
def test_a_stop_at_any_step_leaves_one_model_or_a_refusal(two, tmp_path, monkeypatch, first, second):
    old, new = two

    class Killed(BaseException):
        pass

    outcomes = []
    for end in range(100):
        folder = tmp_path / str(end)
        old.save_pretrained(folder, max_shard_bytes=first)
        left = [end]

        def counted(method, left=left):
            def run(*args, **kwargs):
                if left[0] == 0:
                    raise Killed
                left[0] -= 1
                return method(*args, **kwargs)

            return run

        with monkeypatch.context() as patch:
            for method in ("replace", "unlink", "write_text"):
                patch.setattr(shards.Path, method, counted(getattr(shards.Path, method)))
            patch.setattr(os, "replace", counted(os.replace))
            patch.setattr(shards.shutil, "rmtree", lambda *args, **kwargs: None)  # a killed process tidies nothing
            try:
                new.save_pretrained(folder, max_shard_bytes=second)
                killed = False
            except Killed:
                killed = True
        outcomes.append(which(folder, two))
        new.save_pretrained(folder, max_shard_bytes=second)
        assert which(folder, two) == 1
        assert not any(path.name.startswith(ASIDE) for path in folder.iterdir())
        if not killed:
            break
    assert outcomes == sorted(outcomes, key=[0, None, 1].index)
    assert outcomes[0] == 0 and outcomes[-1] == 1 and None in outcomes


def test_the_same_config_is_never_away(two, tmp_path, monkeypatch):
    model = two[0]
    model.save_pretrained(tmp_path)
    monkeypatch.setattr(shards.Path, "unlink", None)
    model.save_pretrained(tmp_path)
    assert which(tmp_path, two) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_full_disk_leaves_the_old_model(two, tmp_path):
    old, new = two
    old.save_pretrained(tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    if (child := os.fork()) == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        try:
            new.save_pretrained(tmp_path)
        except OSError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files
    assert which(tmp_path, two) == 0


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_folder_in_the_way_is_found_before_anything_is_touched(two, tmp_path, name):
    old, new = two
    old.save_pretrained(tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    (other,) = {path.name for path in tmp_path.iterdir()} - {name}
    content = (tmp_path / other).read_bytes()
    with pytest.raises(IsADirectoryError, match=rf"{name} is a folder: expected a file"):
        new.save_pretrained(tmp_path)
    assert (tmp_path / other).read_bytes() == content


def test_what_could_not_be_loaded_is_not_saved(two, tmp_path):
    model = two[0]

    def refused(message):
        with pytest.raises(StateDictError, match=rf"nothing was written: the tensors are not those.*{message}"):
            model.save_pretrained(tmp_path)
        assert not list(tmp_path.iterdir())

    layer = model.model.layers[1]
    layer.mlp.up_proj.extra = nn.Parameter(np.zeros(3, np.float32))
    refused(r"unexpected \(1\): model\.layers\.1\.mlp\.up_proj\.extra")
    layer.mlp.up_proj.extra = None
    layer.mlp.up_proj = nn.Linear(12, 24, bias=False)
    refused(r"up_proj\.weight: shape \(24, 12\), expected \(20, 12\)")
    layer.mlp.up_proj = nn.Linear(12, 20, bias=False)
    model.config = dataclasses.replace(model.config, num_hidden_layers=3)
    refused(r"missing \(9\): model\.layers\.2\.")
    model.config = dataclasses.replace(model.config, num_hidden_layers=2)
    model.save_pretrained(tmp_path)
    np.testing.assert_array_equal(from_pretrained(tmp_path)(IDS).data, model(IDS).data)


def test_no_folder_without_a_name(two):
    with pytest.raises(ValueError, match="the name of the folder is empty"):
        two[0].save_pretrained("")


def test_a_scaling_of_any_mapping_is_the_model_s_own(tmp_path):
    given = {"rope_type": "linear", "factor": np.float32(2.0)}
    model = build("llama", {**SIZES, "rope_scaling": given})
    given["factor"] = 5.0
    assert model.config.rope_scaling == {"rope_type": "linear", "factor": 2.0}
    model.save_pretrained(tmp_path)
    assert from_pretrained(tmp_path).config == model.config


def test_mixed_dtypes_are_named_by_the_widest(two, tmp_path):
    model = two[0]
    model.model.norm.to("float64")
    model.lm_head.to("bfloat16")
    model.save_pretrained(tmp_path)
    assert '"torch_dtype": "float64"' in (tmp_path / "config.json").read_text()
