"""Vector code against numpy's: lanes, ReLUs that keep signs, rows in registers, small products."""

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numba import njit
from numba.core.extending import _Intrinsic

from graphtheory.ops.backends.cpu import compiling
from graphtheory.ops.backends.cpu.vector import lanes, relus, rows
from graphtheory.ops.backends.cpu.vector.products import TILE, matrix, multiply, whole
from graphtheory.ops.backends.cpu.vector.relus import words_of

TYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def compiled(intrinsic: Any) -> Callable[..., Any]:
    """A function that Python can call; each type of arguments is compiled once."""

    @njit
    def call(*given):
        return intrinsic(*given)

    return call


def run_as_python(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let its loops run uncompiled, but for intrinsics."""
    for name, function in vars(module).copy().items():
        if isinstance(function, _Intrinsic):
            monkeypatch.setattr(module, name, compiled(function))


def eps(dtype: type, times: float) -> dict[str, float]:
    return {"rtol": 0, "atol": times * np.finfo(dtype).eps}


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def leaky(x: np.ndarray, slope: float) -> np.ndarray:
    return np.where(x > 0, x, x * slope)


LANES: dict[str, Callable[..., np.ndarray]] = {
    "scale_into": lambda old, w, x: w * x,
    "add": lambda old, w, x: old + w * x,
    "multiply": lambda old, x: old * x,
    "subtract": lambda old, x: old - x,
    "maximum_": lambda old, x: np.maximum(old, x),
    "softmax_grad": lambda old, x, y: x * (old - y),
    "invert": lambda old: 1 / old,
    "clear": lambda old: 0 * old,
    "leaky_sum": lambda old, w, x, y, z: leaky(x + y + z, w),
    "leaky_grad": lambda old, w, x, y, z: np.where(x + y + z > 0, old, old * w),
}
MORE = {  # formulas that take a number or an array
    "add of products": ("add", lambda old, x, y: old + x * y),
    "multiply by a number": ("multiply", lambda old, w: old * w),
    "softmax_grad of a number": ("softmax_grad", lambda old, x, w: x * (old - w)),
}
OF_LANES = {name: compiled(getattr(lanes, name)) for name in (*LANES, "exp", "no_infinity")}
dot, largest = compiled(lanes.dot), compiled(lanes.largest)


@TYPES
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 15, 16, 17, 24, 32, 33, 47])
def test_lanes(n: int, dtype: type) -> None:
    x, y, z = (draw(size).astype(dtype) for size in (60, 61, 63))
    exact = 1e-5 if dtype == np.float32 else 1e-13
    u, v = x[5 : 5 + n], y[7 : 7 + n]
    assert dot(x, 5, y, 7, n) == pytest.approx((u * v).sum(), abs=exact)
    assert largest(x, 5, n) == np.abs(u).max()
    given = {"w": [dtype(0.5)], "x": [x, 5], "y": [y, 7], "z": [z, 2]}
    values = {"w": dtype(0.5), "x": u, "y": v, "z": z[2 : 2 + n]}
    for case, (name, formula) in ({name: (name, f) for name, f in LANES.items()} | MORE).items():
        names = list(inspect.signature(formula).parameters)[1:]
        out = draw(62).astype(dtype)
        true = out.copy()
        true[3 : 3 + n] = formula(true[3 : 3 + n], *(values[k] for k in names))
        OF_LANES[name](out, 3, *(part for k in names for part in given[k]), n)
        np.testing.assert_allclose(out, true, rtol=exact, atol=exact, err_msg=case)


def test_lanes_of_no_numbers_and_of_special_ones() -> None:
    x = np.array([np.nan, -np.inf, 0.0, -3.0])
    assert dot(x, 0, x, 0, 0) == 0 == largest(x, 0, 0) and largest(x, 0, 4) == np.inf
    assert largest(np.array([1.0, np.nan, -2.0]), 0, 3) == 2
    assert largest(np.array([np.nan, *np.ones(15), -9.0, *np.ones(30)]), 0, 47) == 9
    assert largest(np.array([*np.ones(16), np.nan, *np.ones(15), 9.0]), 0, 33) == 9
    barred, nothing = x.copy(), np.zeros(4)
    OF_LANES["leaky_sum"](barred, 0, 0.0, x, 0, nothing, 0, nothing, 0, 4)
    np.testing.assert_array_equal(barred, [np.nan, -np.inf, 0.0, 0.0])
    OF_LANES["leaky_sum"](barred, 0, 0.0, x, 0, -x, 0, np.full(4, -np.inf), 0, 4)
    assert (barred == -np.inf).all()
    for name, true in (
        ("invert", [np.nan, -0.0, 1.0, -1 / 3]), ("no_infinity", [np.nan, 0.0, 0.0, -3.0]),
    ):  # fmt: skip
        out = x.copy()
        OF_LANES[name](out, 0, 4)
        np.testing.assert_array_equal(out, true)


@TYPES
def test_exponential(dtype: type) -> None:
    x = np.linspace(-86, 60, 4001)
    x = np.concatenate([x, [0.0, -1e-8, 1e-8, -500, -np.inf]]).astype(dtype)
    with np.errstate(under="ignore"):
        true = np.exp(x.astype(np.float64))
    out = x.copy()
    OF_LANES["exp"](out, 0, len(out))
    np.testing.assert_allclose(out, true, rtol=2e-7 if dtype == np.float32 else 1e-15, atol=2e-38)
    assert out[-1] == 0
    unknown = np.full(31, np.nan, dtype)
    OF_LANES["exp"](unknown, 0, 31)
    assert np.isnan(unknown).all()


AT = 3  # numbers before those that are asked for
SIZES = [1, 3, 15, 16, 17, 31, 32, 100, 128, 200]
leaky_dot, leaky_gradients = compiled(relus.leaky_dot), compiled(relus.leaky_gradients)
add_relu_signs, add_where = compiled(relus.add_relu_signs), compiled(relus.add_where)
keep_where, add_by_sign = compiled(relus.keep_where), compiled(relus.add_by_sign)


def between(count: int, n: int, dtype: type) -> list[np.ndarray]:
    """Numbers at `AT`; before and after them NaN, which nothing reads."""
    found = np.full((count, n + 2 * AT), np.nan, dtype)
    found[:, AT : AT + n] = np.random.default_rng(0).standard_normal((count, n))
    return list(found)


def signs_of(bits: np.ndarray, n: int) -> np.ndarray:
    """The bits of n numbers; no bit beyond them is set, and no word beyond theirs written."""
    assert bits[0] == bits[-1] == 7
    signs = np.unpackbits(bits[1:-1].view(np.uint8), bitorder="little").astype(bool)
    assert not signs[n:].any()
    return signs[:n]


@TYPES
@pytest.mark.parametrize("slope", [0.2, 0.0, -0.5])
@pytest.mark.parametrize("n", SIZES)
def test_leaky_sums_and_gradients(n: int, slope: float, dtype: type) -> None:
    close, here = eps(dtype, 50), slice(AT, AT + n)
    x, y, z, att, of_y, of_att, flows = between(7, n, dtype)
    ups, sums, rate = np.linspace(-1, 1, n, dtype=dtype), (x, AT, y, AT, z, AT), dtype(slope)
    total = (x + y + z)[here]
    wanted = np.where(total > 0, total, slope * total)
    np.testing.assert_allclose(leaky_dot(rate, *sums, att, AT, n), wanted @ att[here], **close)
    before = [t.copy() for t in (of_y, of_att)]
    bits = np.full(words_of(n) + 2, 7, np.int16)
    leaky_gradients(ups, rate, *sums, att[AT:], bits, 1, flows, AT, of_y, of_att, AT, n)
    flow = ups * np.where(total > 0, 1, slope) * att[here]
    np.testing.assert_allclose(flows[here], flow, **close)
    np.testing.assert_allclose(of_y[here], before[0][here] + flow, **close)
    np.testing.assert_allclose(of_att[here], before[1][here] + ups * wanted, **close)
    for touched in (flows, of_y, of_att):
        assert np.isnan(touched[:AT]).all() and np.isnan(touched[AT + n :]).all()
    assert (signs_of(bits, n) == (total > 0)).all()


@TYPES
@pytest.mark.parametrize("n", SIZES)
def test_relu_and_what_its_bits_let_through(n: int, dtype: type) -> None:
    x, y, out, other = between(4, n, dtype)
    here, bits = slice(AT, AT + n), np.full(words_of(n) + 2, 7, np.int16)
    x[AT], before = np.nan, (out.copy(), other.copy())
    add_relu_signs(out, AT, bits, 1, x, AT, y, AT, n)
    total = (x + y)[here]
    signs = ~(total <= 0)  # NaN is let through
    assert (signs_of(bits, n) == signs).all()
    close = eps(dtype, 10)
    np.testing.assert_allclose(out[here], before[0][here] + np.where(signs, total, 0), **close)
    y[here][~signs] = np.nan  # which nothing lets through
    add_where(other, AT, bits, 1, y, AT, n)
    wanted = before[1][here] + np.where(signs, y[here], 0)
    np.testing.assert_allclose(other[here], wanted, **close)
    other[here] = 1
    add_by_sign(other, AT, bits, 1, out, AT, dtype(0.5), n)
    wanted = 1 + np.where(signs, 1, dtype(0.5)) * out[here]
    np.testing.assert_allclose(other[here], wanted, **close)
    keep_where(other, AT, bits, 1, y, AT, n)
    np.testing.assert_array_equal(other[here], np.where(signs, y[here], 0))
    for touched in (out, other):
        assert np.isnan(touched[:AT]).all() and np.isnan(touched[AT + n :]).all()


def test_leaky_sums_of_nothing_and_of_what_is_no_number() -> None:
    assert words_of(0) == 0
    x, y, z, att = between(4, 0, np.float64)
    assert leaky_dot(0.2, x, AT, y, AT, z, AT, att, AT, 0) == 0
    x, y, z, att, of_y, of_att, flows = between(7, 17, np.float32)
    x[AT + 2], bits = np.nan, np.zeros(4, np.int16)
    ups, rate, sums = np.ones(17, np.float32), np.float32(0.2), (x, AT, y, AT, z, AT)
    leaky_gradients(ups, rate, *sums, att[AT:], bits, 1, flows, AT, of_y, of_att, AT, 17)
    assert not bits[1] >> 2 & 1  # not positive
    assert np.isnan(of_att[AT + 2]) and np.isfinite(of_att[AT : AT + 2]).all()
    np.testing.assert_allclose(flows[AT + 2], 0.2 * att[AT + 2], rtol=1e-6)


# Registers are 4, 8 or 16 numbers: heads of several, of one, of half of one, and of neither.
SHAPES = [
    (1, 1), (1, 7), (8, 7), (3, 2), (8, 4), (5, 8), (13, 8), (1, 16), (9, 16), (6, 32), (3, 24),
    (1, 64), (3, 64), (2, 128), (1, 136), (2, 256),
]  # fmt: skip
ROWS, ENTRIES, SCALE = 9, 21, 0.5
LOW, HIGH = 2, 19  # of the entries
CHOSEN = slice(LOW, HIGH)
NONE = np.empty(0, np.int64)
OF = np.arange(ENTRIES) % ROWS


def rows_taken(dim: int, dtype: type) -> tuple[bool, bool]:
    """Whether sums take heads, of whole registers or half ones; dot products up to 8 of them."""
    size = dim * np.dtype(dtype).itemsize
    few = [n * rows.REGISTER for n in (1, 2, 4, 8, 16)]
    return size % rows.REGISTER in (0, rows.REGISTER // 2), 2 * size in few


def case(heads: int, dim: int, dtype: type) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((ROWS, heads, dim)).astype(dtype) for _ in range(2))
    return rng, x, y, rng.standard_normal((ENTRIES, heads)).astype(dtype)


def orders(rng: np.random.Generator) -> list[tuple[np.ndarray, ...]]:
    """Edges and rows of the entries in some types, or nothing: then entry t is number t."""
    found = [(NONE, np.arange(ENTRIES), rng.integers(ROWS, size=ENTRIES))]
    for name in ("int32", "int64"):
        edge = rng.permutation(ENTRIES).astype(name)
        found.append((edge, edge, rng.integers(ROWS, size=ENTRIES).astype(name)))
    return found


def add(out, at, step, edges, weights, of, x, row, apart, heads, dim, function=rows.add_rows):
    given = (edges, weights, 0, weights.dtype.type(SCALE), of, x, row, apart, heads, dim)
    return function(out, at, step, LOW, HIGH, *given)


def write(out, edges, x, at, step, of, y, row, apart, heads, dim, function=rows.write_dots):
    return function(out, 0, edges, x, at, step, LOW, HIGH, of, y, row, apart, heads, dim)


OF_ROWS = rows.add_rows, rows.write_dots, rows.add_dots


def check_rows(heads, dim, dtype, functions=OF_ROWS, most=3) -> None:
    added, *dots = functions
    rng, x, y, weights = case(heads, dim, dtype)
    width, (summed, dotted) = heads * dim, rows_taken(dim, dtype)
    for edges, edge, of in orders(rng)[:most]:
        edge, near = edge[CHOSEN], y[of[CHOSEN]]
        found, wanted = x.copy(), x.copy()
        done = add(found, 3 * width, dim, edges, weights, of, y, width, dim, heads, dim, added)
        assert done == summed
        wanted[3] += done * SCALE * np.einsum("th,thd->hd", weights[edge], near)
        np.testing.assert_allclose(found, wanted, **eps(dtype, 500))
        for more, function in enumerate(dots):
            found, wanted, at = weights.copy(), weights.copy(), 3 * width
            done = write(found, edges, x, at, dim, of, y, width, dim, heads, dim, function)
            assert done == dotted
            if done:
                wanted[edge] = more * weights[edge] + np.einsum("hd,thd->th", x[3], near)
            np.testing.assert_allclose(found, wanted, **eps(dtype, 100 * dim**0.5))


@TYPES
@pytest.mark.parametrize(("heads", "dim"), SHAPES)
def test_sums_and_dot_products_of_rows(heads: int, dim: int, dtype: type) -> None:
    check_rows(heads, dim, dtype)


@TYPES
@pytest.mark.parametrize("register", [16, 32, 64])
def test_registers_of_other_processors(register, dtype, monkeypatch) -> None:
    monkeypatch.setattr(rows, "REGISTER", register)
    monkeypatch.setattr(compiling, "_PREFIX", f"registers of {register}")
    monkeypatch.setattr(compiling, "kept_on_disk", lambda f, **options: njit(**options)(f))
    functions = [njit(f.py_func) for f in OF_ROWS]
    for heads, dim in SHAPES:
        check_rows(heads, dim, dtype, functions, most=1)


@pytest.mark.parametrize("heads", [1, 4, 6])
@pytest.mark.parametrize("dim", [16, 32])
def test_rows_that_heads_share_beside_wider_ones(heads: int, dim: int) -> None:
    rng, wide, _, weights = case(heads, dim + 5, np.float32)
    shared = rng.standard_normal((ENTRIES, dim)).astype(np.float32)
    begin, out, logits = 3 * heads * (dim + 5), wide.copy(), weights.copy()
    add(out, begin, dim + 5, NONE, weights, NONE, shared, dim, 0, heads, dim)
    write(logits, NONE, wide, begin, dim + 5, NONE, shared, dim, 0, heads, dim, rows.add_dots)
    wanted, dots = wide.copy(), weights.copy()
    wanted[3, :, :dim] += SCALE * weights[CHOSEN].T @ shared[CHOSEN]
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)
    dots[CHOSEN] += shared[CHOSEN] @ wide[3, :, :dim].T
    np.testing.assert_allclose(logits, dots, rtol=1e-5, atol=1e-5)


def test_infinities_and_nans_stay_in_their_head() -> None:
    _, x, y, weights = case(4, 16, np.float32)
    y[:, 2, 5] = np.inf
    weights[LOW, 1] = np.nan
    found, sums = weights.copy(), np.zeros_like(x)
    write(found, NONE, x, 0, 16, OF, y, 64, 16, 4, 16)
    add(sums, 0, 16, NONE, weights, OF, x, 64, 16, 4, 16)
    assert np.isinf(found[CHOSEN, 2]).all() and np.isfinite(found[LOW:HIGH, [0, 1, 3]]).all()
    assert np.isnan(sums[0, 1]).all() and np.isfinite(sums[0, [0, 2, 3]]).all()


def test_few_entries_are_left_to_the_caller() -> None:
    _, x, _, weights = case(1, 16, np.float32)
    one, out = np.float32(1), x.copy()
    assert not rows.add_rows(out, 0, 16, 0, 11, NONE, weights, 0, one, OF, x, 16, 16, 1, 16)
    for function in (rows.write_dots, rows.add_dots):
        assert not function(weights, 0, NONE, x, 0, 16, 0, 11, OF, x, 16, 16, 1, 16)


def product(x, y, n, depth, m, turned, times):
    """Entries in the order of `matrix`, all else NaN."""
    left = matrix(depth, n, x).T if turned else matrix(n, depth, x)
    right, out = matrix(depth, m, x), matrix(n, m, x)
    left[:], right[:], out[:] = np.nan, np.nan, np.nan
    left[:n, :depth], right[:depth, :m] = x, y
    for more in range(times):
        multiply(left, right, out, n, depth, m, more > 0)
    return out


@TYPES
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("n", "depth", "m"), [
    (1, 1, 1), (7, 63, 5), (6, 16, 16), (63, 7, 257), (66, 197, 64), (257, 20, 33),
])  # fmt: skip
def test_products(n: int, depth: int, m: int, turned: bool, dtype: type) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype(dtype) for shape in ((n, depth), (depth, m)))
    for times in (1, 2):
        out = product(x, y, n, depth, m, turned, times)
        wanted = times * (x.astype(float) @ y)
        np.testing.assert_allclose(out[:n, :m], wanted, **eps(dtype, 100 * depth**0.5))
        assert np.isnan(out[-1]).all()  # beyond the tiles nothing is written


@TYPES
def test_rows_of_a_matrix_share_no_place_of_the_cache(dtype: type) -> None:
    for columns in (1, 16, 17, 64, 128, 200):
        found = matrix(13, columns, np.zeros(1, dtype))
        assert found.shape[0] == 3 * TILE + 1 and found.shape[1] >= whole(columns) >= columns
        assert found.strides[0] % 128 == 64 and not found.any()
