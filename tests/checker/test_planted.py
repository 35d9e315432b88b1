"""Faults planted in plain NumPy pairs are caught and called by their name; sound pairs pass."""

import json
import xml.etree.ElementTree as tree

import numpy as np
import pytest

import gradcheck
from gradcheck import main

from .planted_pairs import FAULTS
from .sound_pairs import SOUND

FAULTY = pytest.mark.parametrize("fault", FAULTS, ids=[f"{f.kind}-{f.name}" for f in FAULTS])


@FAULTY
def test_a_planted_fault_is_called_by_its_name(fault):
    rng = np.random.default_rng(0)
    report = gradcheck.check(fault.pair, *(draw(rng) for draw in fault.draws))
    assert report.verdict == "wrong", str(report)
    assert report.kind == fault.kind, str(report)


def test_twelve_kinds_on_several_functions_each():
    kinds = [f.kind for f in FAULTS]
    assert sum(kinds.count(k) >= 3 for k in set(kinds)) >= 12


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SOUND)
def test_sound_pairs_pass(name, seed):
    pair, draws = SOUND[name]
    rng = np.random.default_rng(seed)
    report = gradcheck.check(pair, *(draw(rng) for draw in draws), seed=seed)
    assert report.passed, str(report)


def test_the_command_line_writes_json_and_junit(tmp_path, capsys):
    out, xml = tmp_path / "r.json", tmp_path / "r.xml"
    status = main(["--op", "exp", "--op", "mul", "--jobs", "1", "--json", str(out), "--junit", str(xml)])
    assert status == 0
    assert "exp" in capsys.readouterr().out
    assert json.loads(out.read_text())
    assert tree.parse(xml).getroot() is not None


def test_the_command_line_names_what_it_does_not_know(capsys):
    assert main(["--op", "exq", "--jobs", "1"]) == 2
    assert "exp" in capsys.readouterr().err
