"""The command line: what it prints, writes and returns."""

import json
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

import gradcheck
from gradcheck.export import write_json, write_junit

MODULE = """
import numpy as np
import entrenar as en

@en.primitive(samples=en.samples.unary(en.samples.reals(-1, 1)), vjp=dict(x=lambda g, x: g * en.cos(x)))
def sine(x):
    return np.sin(x)

@en.primitive(samples=en.samples.unary(en.samples.reals(-1, 1)), vjp=dict(x=lambda g, x: -g * en.cos(x)))
def wrong(x):
    return np.sin(x)

number = 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_waves.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield "my_waves"
    sys.modules.pop("my_waves", None)


def test_a_users_op_passes(module, capsys):
    assert gradcheck.main([f"{module}:sine"]) == 0
    assert "my_waves:sine: pass" in capsys.readouterr().out


def test_a_wrong_one_is_read_out_and_written_to_files(module, tmp_path, capsys):
    out, xml = tmp_path / "r.json", tmp_path / "r.xml"
    assert gradcheck.main([f"{module}:wrong", "--seed", "2", "--json", str(out), "--junit", str(xml)]) == 1
    assert "wrong, sign" in capsys.readouterr().out
    report = json.loads(out.read_text())["reports"][0]
    assert (report["verdict"], report["kind"], report["passed"], report["seed"]) == ("wrong", "sign", False, 2)
    assert report["findings"][0]["where"]["input"] == "x"
    suite = ElementTree.parse(xml).getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    assert "suspected" in suite.find("testcase/failure").text


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "give an op"),
        (["nocolon"], "not of the form module:op"),
        (["no_such_module:op"], "no module 'no_such_module'"),
        (["my_waves:sin"], "did you mean 'sine'"),
        (["my_waves:number"], "is a int"),
        (["numpy:sin"], "none of the 0 arguments"),
        (["--op", "sofmax"], "did you mean 'softmax'"),
        (["--all", "my_waves:sine"], "not both"),
        (["--op", "exp", "--backend", "abacus"], "known are"),
        (["--op", "exp", "--jobs", "0"], "expected at least 1"),
        (["--order", "3"], "invalid choice"),
        (["--frobnicate"], "unrecognized"),
    ],
)
def test_usage_errors_return_2_and_say_what_is_wrong(module, argv, says, capsys):
    assert gradcheck.main(argv) == 2
    assert says in capsys.readouterr().err


def test_the_table(capsys):
    assert gradcheck.main(["--op", "exp", "--op", "softmax", "--op", "argmax", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert rows["exp"][1:4] == ["9", *rows["exp"][2:4]]
    assert all(int(n) > 100 for n in rows["exp"][2:4])
    assert rows["softmax"][5].endswith("numpy")
    assert rows["argmax"][-1] == "pass"
    assert "3 ops" in out
    assert "all passed" in out


def test_the_portable_backend_alone(capsys):
    assert gradcheck.main(["--op", "softmax", "--backend", "numpy", "--order", "1", "--jobs", "1"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("softmax"))
    assert row.split()[3] == "0"
    assert row.split()[5] == "numpy"


def test_processes_give_the_same_table(tmp_path):
    """In processes of its own, as a user calls it."""

    def table(jobs):
        argv = [sys.executable, "-m", "gradcheck", "--op", "exp", "--op", "add", "--order", "1", "--jobs", jobs]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        return [line for line in done.stdout.splitlines() if not line.endswith(" s")]

    assert table("2") == table("1")


def test_numbers_that_json_has_no_word_for(tmp_path):
    report = gradcheck.check((np.sqrt, lambda g, x: g / (2 * np.sqrt(x))), np.array([0.0, 1.0]))
    report.worst = float("nan")
    write_json(tmp_path / "r.json", [report])
    write_junit(tmp_path / "r.xml", [report])
    text = (tmp_path / "r.json").read_text()
    assert (
        json.loads(text, parse_constant=lambda name: pytest.fail(name))["reports"][0]["worst_relative_error"] == "nan"
    )
    assert ElementTree.parse(tmp_path / "r.xml").getroot().tag == "testsuites"
