"""Strict YAML: scalars, places of errors, exact round trips (cases 169-175)."""

import math

import pytest
from hypothesis import given, strategies as st

from entrenar.io import ConfigError, yaml as strict


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("2E5", 2e5),
        (".5", 0.5),
        ("-3", -3),
        ("+7", 7),
        ("0", 0),
        ("1.", 1.0),
        ("0x1F", 31),
        ("0o17", 15),
        (".inf", math.inf),
        ("-.Inf", -math.inf),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("1e-4x", "1e-4x"),
        ("'010'", "010"),
        ('"12:30"', "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("=", "="),
        ("1.2.3", "1.2.3"),
    ],
)
def test_scalars_of_the_core_schema(text, value):
    found = strict.loads(f"a: {text}").value["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("1_000", "write 1000"),
        ("-1_0.5", "write -10.5"),
        ("010", "write 10"),
        ("007", "write 7"),
        ("12:30", "quote"),
        ("1:2:3", "quote"),
    ],
)
def test_ambiguous_numbers_are_errors_that_say_what_to_write(text, advice):
    with pytest.raises(ConfigError, match=rf"^f.yaml:2:6: .*{advice}"):
        strict.loads(f"x: 1\nkey: {text}", "f.yaml")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: 1\nb: 2\na: 3", ":3:1: key 'a' stands twice, first in line 1"),
        ("a:\n\t- b", ":2:1: "),
        ("a: [1", ":1:6: "),
        ("a: 1\n b: 2", ":2:"),
        ("a: !!python/object:os.system x", ":1:4: tag"),
        ("? [x]\n: 1", ":1:3: a key"),
        ("a: &x\n  b: *x", ":"),
        ("a: !mine 1", ":1:4: tag"),
    ],
)
def test_errors_have_file_line_and_column(text, place):
    with pytest.raises(ConfigError) as caught:
        strict.loads(text, "f.yaml")
    assert str(caught.value).startswith("f.yaml" + place)
    assert caught.value.exit_status == 2


def test_positions_of_keys_and_items():
    document = strict.loads("a:\n  b: [1, 2]\n", "f.yaml")
    assert document.positions[("a", "b")] == (2, 3)
    assert document.positions[("a", "b", 1)] == (2, 10)
    assert str(document.error(("a", "zzz"), "m")) == "f.yaml:1:1: m"


def test_files(tmp_path):
    path = tmp_path / "c.json"
    path.write_text('{"a": 1e-4}')
    assert strict.load(path).value == {"a": 1e-4}
    path.write_text("{a: 1}")
    with pytest.raises(ConfigError, match=r"c\.json:1:2"):
        strict.load(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        strict.load(tmp_path / "missing.yaml")
    (tmp_path / "b.yaml").write_bytes(b"a: \xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        strict.load(tmp_path / "b.yaml")


plain = (
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False)
    | st.text(st.characters(blacklist_categories=["Cs"]), max_size=12)
)


@given(
    st.recursive(
        plain,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text("abcxyz_", min_size=1, max_size=5), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_what_is_dumped_is_read_back_exactly(value):
    assert strict.loads(strict.dumps({"v": value})).value == {"v": value}
