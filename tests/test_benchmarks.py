"""The benchmark runner: fair pairs, a clean child, no time without a right result."""

import json
import sys
import types

import pytest

from benchmarks import runner


def test_sides_take_turns_in_going_first():
    order = []
    runner.compare("name", "peer", lambda: order.append("a"), lambda: order.append("b"), repeats=3)
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"


def test_the_ratio_is_the_median_over_pairs(monkeypatch):
    times = iter([1.0, 4.0, 9.0, 2.0, 3.0, 4.0])  # pairs (1, 4), (2, 9), (3, 4)
    monkeypatch.setattr(runner, "seconds", lambda run: next(times))
    result = runner.compare("name", "peer", lambda: None, lambda: None, repeats=3, items=2, target=0.3)
    assert (result.ours, result.theirs, result.ratio, result.met) == (1.0, 2.0, 0.25, True)
    assert "target 0.30 met" in str(result)


def test_the_child_computes_with_this_processors_kernels(monkeypatch):
    for name in runner.DROPPED:
        monkeypatch.setenv(name, "anything")
    env = runner.clean_environment(threads=2)
    assert not set(runner.DROPPED) & set(env)
    assert env["OMP_NUM_THREADS"] == "2"


def planted(monkeypatch, results):
    monkeypatch.setattr(runner, "BENCHMARKS", ("planted",))
    monkeypatch.setitem(sys.modules, "benchmarks.planted", types.SimpleNamespace(results=results))


def test_a_missed_target_is_told_and_is_no_failure(monkeypatch, tmp_path, capsys):
    planted(monkeypatch, lambda repeats: [runner.Result("slow", "peer", 2.0, 1.0, 2.0, target=1.0)])
    assert runner.main(["--here", "--json", str(tmp_path / "out.json")]) == 0
    assert "MISSED" in capsys.readouterr().out
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["results"][0]["met"] is False
    assert "numpy" in written["machine"]


def test_a_wrong_result_is_not_timed(monkeypatch, capsys):
    def wrong(repeats):
        raise AssertionError("3 is not 4")
        yield

    planted(monkeypatch, wrong)
    assert runner.main(["--here"]) == 1
    assert "3 is not 4" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nonsense"], ["--repeats", "0"]])
def test_a_wrong_call_is_refused_by_value(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        runner.main(arguments)
    assert arguments[-1] in capsys.readouterr().err
