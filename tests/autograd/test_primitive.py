"""Declaring ops: what is read, what is refused, and the generated source."""

import numpy as np
import pytest

import entrenar as en
from entrenar.autograd import OPS, source


def test_a_missing_pullback_is_a_type_error_at_declaration():
    with pytest.raises(TypeError, match="no pullback for input 'b'"):

        @en.primitive(vjp=dict(a=lambda g, b: g * b))
        def half(a, b):
            return a * b


def test_a_pullback_that_asks_for_an_unknown_name():
    with pytest.raises(TypeError, match=r"asks for 'bb'"):

        @en.primitive(vjp=dict(a=lambda g, bb: g, b=lambda g: g))
        def odd(a, b):
            return a + b


@pytest.mark.parametrize("name", ["g", "y", "needs", "x_meta"])
def test_reserved_names_are_refused(name):
    with pytest.raises(TypeError, match=name):
        exec(f"def f(x, {name}): return x\nen.primitive(vjp=dict(x=lambda g: g))(f)", {"en": en})


def test_a_rule_for_no_input():
    with pytest.raises(TypeError, match=r"'aa' is not an input.*Did you mean"):

        @en.primitive(vjp=dict(aa=lambda g: g))
        def f(a):
            return a


def test_only_ops_that_declare_broadcasting_are_summed_back():
    @en.primitive(vjp=dict(a=lambda g: g, b=lambda g: g))
    def plain_add(a, b):
        return a + b

    a, b = en.ones(2, 3, requires_grad=True), en.ones(3, requires_grad=True)
    with pytest.raises(ValueError, match=r"plain_add for 'b' returned shape \(2, 3\), expected \(3,\)"):
        plain_add(a, b).sum().backward()


def test_a_wrong_dtype_of_a_cotangent_names_op_and_input():
    @en.primitive(vjp=dict(x=lambda g: g.astype(np.float64)))
    def widens(x):
        return x * 1

    with pytest.raises(TypeError, match=r"widens for 'x' returned dtype float64, expected float32"):
        widens(en.ones(2, requires_grad=True)).sum().backward()


def test_exactly_what_the_wanted_pullbacks_name_is_saved():
    a, b = en.ones(2, requires_grad=True), en.ones(2)
    assert en.mul(a, b).node.saved == (b.data, None) or en.mul(a, b).node.saved[0] is b.data
    assert en.mul(a, b).node.saved[1] is None
    assert en.add(a, b).node.saved == ()


def test_keywords_reach_the_pullback_and_the_tape():
    @en.primitive(vjp=dict(x=lambda g, factor: g * factor))
    def times(x, *, factor=2.0):
        return x * factor

    x = en.ones(3, requires_grad=True)
    times(x, factor=5.0).sum().backward()
    assert x.grad.tolist() == [5, 5, 5]
    assert "times(x0, factor=5.0)" in str(en.tape(times(x, factor=5.0)))


def test_optional_inputs_are_none_and_skipped():
    @en.primitive(vjp=dict(x=lambda g: g, b=lambda g: g), broadcasts=True)
    def maybe(x, b=None):
        return x if b is None else x + b

    x, b = en.ones(3, requires_grad=True), en.ones(3, requires_grad=True)
    maybe(x).sum().backward()
    maybe(x, b).sum().backward()
    assert (x.grad.tolist(), b.grad.tolist()) == ([2, 2, 2], [1, 1, 1])


def test_tuple_outputs_get_none_for_the_unused():
    seen = []

    @en.primitive(vjp=dict(x=lambda g: seen.append([v is None for v in g]) or g[0]))
    def twice(x):
        return x * 1, x * 2

    x = en.ones(2, requires_grad=True)
    twice(x)[0].sum().backward()
    assert seen == [[False, True]]


def test_a_joint_pullback_learns_what_is_needed():
    asked = []

    def pull(g, a, b, needs):
        asked.append(needs)
        return g * b if needs[0] else None, g * a if needs[1] else None

    @en.primitive(vjp=pull)
    def product(a, b):
        return a * b

    a, b = en.ones(2, requires_grad=True), en.ones(2)
    product(a, b).sum().backward()
    assert asked == [(True, False)]


def test_unknown_keywords_are_named_and_dim_is_axis():
    x = en.ones(2, 3, requires_grad=True)
    assert en.sum(x, dim=1, keepdim=True).shape == (2, 1)
    assert x.sum(0).shape == (3,)
    with pytest.raises(TypeError, match=r"axes=0.*Did you mean 'axis'"):
        en.sum(x, axes=0)
    with pytest.raises(TypeError, match="both axis=0 and dim=1"):
        en.sum(x, axis=0, dim=1)


def test_redefinition_replaces_and_identity_is_module_and_name():
    def declare(factor):
        @en.primitive(vjp=dict(x=lambda g: g * factor))
        def cell(x):
            return x * factor

        return cell

    first, second = declare(2.0), declare(3.0)
    assert OPS[second.op.key] is second
    assert first.op.key == second.op.key

    def gelu(x):
        return x * 0

    mine = en.primitive(vjp=dict(x=lambda g: g * 0.0))(gelu)
    assert mine.op.key != en.gelu.op.key


def test_methods_bind_and_the_source_can_be_read():
    assert en.Tensor.__mul__ is en.mul
    text = source(en.mul)
    assert "def call(a, b)" in text
    assert "def pull(_node, _parents, g, _cot)" in text


def test_arrays_in_arrays_out():
    y = en.exp(np.zeros(2))
    assert isinstance(y, np.ndarray)
    assert isinstance(en.exp(en.zeros(2)), en.Tensor)


def test_wrong_count_from_a_joint_pullback():
    @en.primitive(vjp=lambda g, a, b, needs: g)
    def two(a, b):
        return a * b

    with pytest.raises(TypeError, match="tuple of 2 cotangents"):
        two(en.ones(2, requires_grad=True), en.ones(2)).sum().backward()


def test_a_pullback_that_returns_none():
    @en.primitive(vjp=dict(x=lambda g: None))
    def nothing(x):
        return x * 1

    with pytest.raises(TypeError, match="nothing for 'x' returned None"):
        nothing(en.ones(2, requires_grad=True)).sum().backward()
