"""Functions of `std.math`, `std.special` and `std.bits`: errors in units in the last place, special values, bits by Python's integers."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import tensorlang as tl

Array = np.ndarray[Any, Any]
INF, NAN = float("inf"), float("nan")

# Arguments, which are rounded to f32, and the values there, by mpmath with 30 digits.
VALUES: dict[str, tuple[list[float], list[float]]] = {
    "erfc": (
        [-3, -0.3, 0.2, 0.47, 1.5, 4.25, 9, 26],
        [
            1.9999779095030015,
            1.3286267717527154,
            0.7772974075585481,
            0.5062549501924412,
            0.033894853524689274,
            1.8505741373867425e-09,
            4.13703174651381e-37,
            5.663192408856143e-296,
        ],
    ),
    "erfcx": (
        [-5, -0.3, 0.2, 1.5, 4.25, 9, 26, 100000.0],
        [
            144009798674.66104,
            1.4537492566921186,
            0.8090195175031752,
            0.3215854164543175,
            0.12934527478598792,
            0.06230772403777468,
            0.021683584850562907,
            5.6418958351954685e-06,
        ],
    ),
    "erfinv": (
        [-0.9990234375, -0.3, 1e-06, 0.125, 0.75, 0.96875, 0.9999],
        [
            -2.331467773621948,
            -0.2724627261055238,
            8.862269232154821e-07,
            0.11123545184094996,
            0.8134198475976185,
            1.523019401996956,
            2.7510354379032873,
        ],
    ),
    "ndtri": (
        [1e-30, 1e-06, 0.03125, 0.3, 0.625, 0.9375],
        [-11.464024688169063, -4.7534243093331225, -1.8627318674216515, -0.5244004784222137, 0.31863936396437514, 1.5341205443525463],
    ),
    "ndtr": (
        [-5, -2, -0.25, 0.5, 1.75, 4],
        [2.866515718791939e-07, 0.02275013194817921, 0.4012936743170763, 0.6914624612740131, 0.9599408431361829, 0.9999683287581669],
    ),
    "log_ndtr": (
        [-300, -20, -2, -0.25, 0.5, 1.75],
        [-45006.62273211866, -203.91715537109727, -3.783184333682032, -0.9130617648111351, -0.3689464152886564, -0.04088361815209493],
    ),
    "mish": (
        [-20.5, -1.25, -1e-06, 0.125, 3.75, 18, 19.99, 20.5, 1e6],
        [
            -2.5628133744908681e-08,
            -0.30841396114152768,
            -5.9999967848513124e-07,
            0.079957570847359806,
            3.7460423929964594,
            17.999999999999992,
            19.989999771118164,
            20.5,
            1e6,
        ],
    ),
    "gamma": (
        [-3.5, -0.25, 0.001, 0.375, 1.25, 3, 7.5, 30],
        [
            0.2700882058522691,
            -4.901666809860711,
            999.4237249871933,
            2.370436184416601,
            0.906402477055477,
            2.0,
            1871.2543057977884,
            8.841761993739702e30,
        ],
    ),
    "lgamma": (
        [-3.5, 0.001, 0.375, 0.99, 1.25, 2.01, 3, 7.5, 30, 10000000000.0, 1e30],
        [
            -1.309006684993042,
            6.907178837859066,
            0.8630739822706475,
            0.005854801101922376,
            -0.09827183642181316,
            0.0042600188137990585,
            0.6931471805599453,
            7.534364236758733,
            71.25703896716801,
            220258509288.81058,
            6.807755382926351e31,
        ],
    ),
    "digamma": (
        [-3.25, 0.001, 0.375, 1.25, 3, 7.5, 30, 10000000000.0],
        [
            4.46627587235028,
            -1000.5755244342832,
            -2.7539990491451394,
            -0.22745353337626542,
            0.9227843350984671,
            1.9467574842460869,
            3.384438132685525,
            23.025850929890456,
        ],
    ),
    "trigamma": (
        [-3.25, 0.001, 0.375, 1.25, 3, 7.5, 30, 10000000000.0],
        [
            19.474085068082154,
            1000001.5475382999,
            8.161777632761508,
            1.1973291545071107,
            0.39493406684822646,
            0.1426158966967038,
            0.033895060357739946,
            1.00000000005e-10,
        ],
    ),
    "i0": (
        [-5, 0.5, 3, 8.5, 50],
        [27.239871823604446, 1.0634833707413236, 4.8807925858650245, 683.1619269901156, 2.9325537838493362e20],
    ),
    "i0e": (
        [-5, 0.5, 3, 8.5, 50, 10000.0],
        [0.18354081260932836, 0.6450352704491501, 0.2430003541618254, 0.13900184305484758, 0.05656162664745419, 0.003989472674604732],
    ),
    "i1": (
        [-5, 0.5, 3, 8.5, 50],
        [-24.335642142450528, 0.2578943053908963, 3.9533702174026093, 641.6199025400667, 2.903078590103557e20],
    ),
    "i1e": (
        [-50, 0.5, 3, 8.5, 10000.0],
        [-0.0559931238928954, 0.1564208031848717, 0.19682671329730086, 0.13054935509459586, 0.003989273195983662],
    ),
    "j0": (
        [-3.5, 0.001, 1, 4, 7.5, 8.5, 30, 1000],
        [
            -0.3801277399872634,
            0.9999997499999919,
            0.7651976865579666,
            -0.39714980986384735,
            0.2663396578803784,
            0.041939251842934504,
            -0.08636798358104021,
            0.024786686152420176,
        ],
    ),
    "j1": (
        [-3.5, 0.001, 1, 5, 7.75, 8.5, 30, 1000],
        [
            -0.1373775273623272,
            0.0004999999612487194,
            0.4400505857449335,
            -0.32757913759146523,
            0.1916025921891178,
            0.2731219636740537,
            -0.11875106261662294,
            0.004728311907089524,
        ],
    ),
    "y0": (
        [0.001, 0.5, 2, 5, 7.75, 8.5, 30, 1000],
        [
            -4.471416581137993,
            -0.44451873350670656,
            0.5103756726497451,
            -0.30851762524903376,
            0.17676987751364717,
            0.27020510536578746,
            -0.11729573168666403,
            0.0047159179776228135,
        ],
    ),
    "y1": (
        [0.001, 0.5, 1, 3.5, 7.75, 9, 30, 1000],
        [
            -636.6221369934228,
            -1.471472392670243,
            -0.7812128213002887,
            0.41018841788751187,
            -0.21433222865940804,
            0.10431457519671589,
            0.08442557066174723,
            -0.024784331292351778,
        ],
    ),
    "k0": (
        [0.001, 0.5, 1, 1.9375, 2.5, 8.5, 50],
        [
            7.02368875306511,
            0.9244190712276659,
            0.42102443824070834,
            0.12300567052555429,
            0.06234755320036619,
            8.625756634932507e-05,
            3.4101677497894956e-23,
        ],
    ),
    "k0e": (
        [0.001, 0.5, 1.9375, 2.5, 50, 10000],
        [7.0307159551674, 1.5241093857739094, 0.8538285872562115, 0.7595486903280996, 0.17680715585742934, 0.012532984717699286],
    ),
    "k1": (
        [0.001, 0.5, 1, 1.9375, 2.5, 8.5, 50],
        [
            999.9961906584816,
            1.656441120003301,
            0.6019072301972346,
            0.151894691359947,
            0.07389081634774707,
            9.119724775006898e-05,
            3.4441022267175555e-23,
        ],
    ),
    "k1e": (
        [0.001, 0.5, 1.9375, 2.5, 50, 10000],
        [1000.9966870614879, 2.731009708211786, 1.0543581379741223, 0.900174423907878, 0.17856655855881556, 0.012533611351270506],
    ),
    "logit": (
        [1e-05, 0.3, 0.501953125, 0.75, 0.96875],
        [-11.512915490182605, -0.8472978036208759, 0.007812539736793652, 1.0986122886681098, 3.4339872044851463],
    ),
    "entr": (
        [1e-05, 0.3, 1.5, 8],
        [0.00011512925199391392, 0.3611918437293259, -0.6081976621622466, -16.635532333438686],
    ),
    "log_sigmoid": (
        [-30, -1, 0.5, 8],
        [-30.000000000000092, -1.3132616875182228, -0.4740769841801067, -0.00033540637289576885],
    ),
    "cbrt": (
        [-27, -1e-10, 0.3, 2, 1e20],
        [-3.0, -0.00046415888542700645, 0.6694329589491279, 1.2599210498948732, 4641588.86461995],
    ),
    "exp10": (
        [-20, -0.5, 0.3, 2, 30],
        [1e-20, 0.31622776601683794, 1.9952623697367424, 100.0, 1e30],
    ),
    "log10": (
        [1e-20, 0.5, 3, 1000, 1e20],
        [-20.00000001378211, -0.3010299956639812, 0.47712125471966244, 3.0, 20.000000008703644],
    ),
    "sinpi": (
        [-3.25, -0.75, 0.125, 0.375, 1.6875, 100001.5],
        [0.7071067811865476, -0.7071067811865476, 0.3826834323650898, 0.9238795325112867, -0.8314696123025452, -1.0],
    ),
    "cospi": (
        [-3.25, -0.75, 0.125, 0.375, 1.6875, 100001.25],
        [-0.7071067811865476, -0.7071067811865476, 0.9238795325112867, 0.3826834323650898, 0.5555702330196022, -0.7071067811865476],
    ),
    "sinc": (
        [-3.25, -0.75, 0.125, 1.6875, 1001.5],
        [-0.06925510124285432, 0.30010543871903533, 0.9744953584044327, -0.15683851713025407, -0.0003178331364790721],
    ),
}
WORST = {"j0": 9, "j1": 9, "y0": 12, "y1": 9, "ndtr": 30, "log_ndtr": 30, "gamma": 15, "lgamma": 8, "digamma": 8}
"""Units in the last place by which results in f64 err where that is more than 6: arguments are rounded on the way."""


@cache
def unary() -> Any:
    """Return an operator with an argument and a result for each function."""
    params = ", ".join(f"x_{f}: T[n_{f}]" for f in VALUES)
    results = ", ".join(f"y_{f}: T[n_{f}]" for f in VALUES)
    clauses = "\n".join(f"y_{f}[i] = {f}(x_{f}[i])" for f in VALUES)
    return tl.parse(f"use std.math\nuse std.special\nop f[T: float]({params}) -> ({results}) {{\n{clauses}\n}}").f.schedule("")


@cache
def values(dtype: type) -> dict[str, Array]:
    arrays = [np.array(x, np.float32).astype(dtype) for x, _ in VALUES.values()]
    return dict(zip(VALUES, unary()(*arrays), strict=True))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fn", VALUES)
def test_error_of_functions_of_the_library(fn: str, dtype: type) -> None:
    with np.errstate(over="ignore"):
        exact = np.array(VALUES[fn][1]).astype(dtype)
    found = values(dtype)[fn]
    finite = np.isfinite(exact) & (np.abs(exact) > np.finfo(dtype).tiny)
    assert (np.isfinite(found) == np.isfinite(exact)).all()
    assert np.max(np.abs(found - exact)[finite] / np.spacing(np.abs(exact[finite]))) <= (2 if dtype == np.float32 else WORST.get(fn, 6))


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -2.0, INF, -INF, NAN])
AT_SPECIAL_VALUES = {
    "erfc": [1, 1, ..., ..., ..., ..., 0, 2, NAN],
    "erfinv": [0, 0, INF, -INF, NAN, NAN, NAN, NAN, NAN],
    "ndtri": [-INF, -INF, INF, NAN, NAN, NAN, NAN, NAN, NAN],
    "gamma": [INF, -INF, 1, NAN, ..., NAN, INF, NAN, NAN],
    "lgamma": [INF, INF, 0, INF, ..., INF, INF, INF, NAN],
    "digamma": [-INF, INF, ..., NAN, ..., NAN, INF, NAN, NAN],
    "i0": [1, 1, ..., ..., ..., ..., INF, INF, NAN],
    "i1": [0, 0, ..., ..., ..., ..., INF, -INF, NAN],
    "j0": [..., ..., ..., ..., ..., ..., 0, 0, NAN],
    "j1": [0, -0.0, ..., ..., ..., ..., 0, 0, NAN],
    "y1": [-INF, -INF, ..., NAN, ..., NAN, 0, NAN, NAN],
    "k0": [INF, INF, ..., NAN, ..., NAN, 0, NAN, NAN],
    "k1e": [INF, INF, ..., NAN, ..., NAN, 0, NAN, NAN],
    "cbrt": [0, -0.0, 1, -1, ..., ..., INF, -INF, NAN],
    "sinc": [1, 1, 0, 0, ..., 0, NAN, NAN, NAN],
    "isfinite": [1, 1, 1, 1, 1, 1, 0, 0, 0],
    "signbit": [0, 1, 0, 1, 0, 1, 0, 1, 0],
}


def test_special_values_of_functions_of_the_library() -> None:
    results = ", ".join(f"y_{f}: {'bool' if f in ('isfinite', 'signbit') else 'f64'}[N]" for f in AT_SPECIAL_VALUES)
    clauses = "\n".join(f"y_{f}[i] = {f}(x[i])" for f in AT_SPECIAL_VALUES)
    found = tl.parse(f"use std.math\nuse std.special\nop f(x: f64[N]) -> ({results}) {{\n{clauses}\n}}").f.schedule("")(SPECIAL)
    for (fn, expected), array in zip(AT_SPECIAL_VALUES.items(), found, strict=True):
        known = [k for k, value in enumerate(expected) if value is not ...]
        np.testing.assert_array_equal(array[known], np.array([expected[k] for k in known], array.dtype), err_msg=fn)


def test_sums_of_powers_of_all_numbers_from_one_on_are_hurwitz_zeta_function() -> None:
    q, s = np.array([0.25, 1, 3.5, 19, 20.5, 1000.0]), np.array([1.5, 3.0, 6.0])
    exact = np.array(
        [
            [10.213055360466601, 2.612375348685488, 1.1507975560433554, 0.4649481294383642, 0.4471786791930941, 0.06326136854451493],
            [
                64.66386996876847,
                1.2020569031595942,
                0.0541020258208637,
                0.0014598550486569627,
                0.0012492198861838672,
                5.005002499999166e-07,
            ],
            [
                4096.270948064011,
                1.0173430619844492,
                0.0007254098213931957,
                9.195806435339889e-08,
                6.230548033533049e-08,
                2.0050049999953333e-16,
            ],
        ]
    )
    found = tl.parse("use std.special\nop f(q: f64[N], s: f64[M]) -> (y: f64[M, N]) { y[i, j] = hurwitz(q[j], s[i]) }").f(q, s)
    assert np.max(np.abs(found - exact) / np.spacing(exact)) <= 3


BINARY = {
    "hypot": np.hypot, "copysign": np.copysign, "floor_mod": np.remainder, "logaddexp": np.logaddexp, "logaddexp2": np.logaddexp2,
    "floor_div": np.floor_divide, "fmax": np.fmax, "fmin": np.fmin, "heaviside": np.heaviside,
    "fdim": lambda x, y: np.where(x <= y, 0, x - y),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_of_two_numbers_are_those_of_numpy(dtype: type) -> None:
    results = ", ".join(f"y_{f}: T[N]" for f in BINARY)
    clauses = "\n".join(f"y_{f}[i] = {f}(a[i], b[i])" for f in BINARY)
    op = tl.parse(f"use std.math\nop f[T: float](a: T[N], b: T[N]) -> ({results}) {{\n{clauses}\n}}").f
    random = np.random.default_rng(3).normal(size=(2, 200)) * 9
    a, b = (np.concatenate([x, y]).astype(dtype) for x, y in zip(random, (np.repeat(SPECIAL, 9), np.tile(SPECIAL, 9)), strict=True))
    for (fn, reference), found in zip(BINARY.items(), op(a, b), strict=True):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(found, reference(a, b), rtol=16 * np.finfo(dtype).eps, err_msg=fn)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_are_taken_apart_and_scaled_without_rounding_twice(dtype: type) -> None:
    ops = tl.parse("""
use std.math (frexp, ldexp)
op parts[T: float](x: T[N]) -> (m: T[N], n: i32[N]) { m[i], n[i] = frexp(x[i]) }
op scaled[T: float](x: T[N], n: i32[N]) -> (y: T[N]) { y[i] = ldexp(x[i], n[i]) }
""")
    random, least = np.random.default_rng(5), -1074 if dtype == np.float64 else -149
    x = np.concatenate([random.normal(size=500) * np.exp2(random.integers(least, 90, 500)), SPECIAL]).astype(dtype)
    n = random.integers(-160, 160, x.size).astype(np.int32) * random.choice([1, 14], x.size).astype(np.int32)
    for found, expected in zip(ops.parts(x), np.frexp(x), strict=True):
        np.testing.assert_array_equal(found[:500], expected[:500])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(ops.scaled(x, n), np.ldexp(x, n))


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint64], ids=lambda t: t.__name__)
def test_bits_of_whole_numbers(dtype: Any) -> None:
    info = np.iinfo(dtype)
    width, mask, low, high = info.bits, (1 << info.bits) - 1, int(info.min), int(info.max)
    expected = {
        "popcount(x[i])": lambda u, x, y: u.bit_count(),
        "clz(x[i])": lambda u, x, y: width - u.bit_length(),
        "ctz(x[i])": lambda u, x, y: (u & -u).bit_length() - 1 if u else width,
        "rotl(x[i], y[i])": lambda u, x, y: (u << y % width) | (u >> (width - y % width)),
        "rotr(x[i], 3)": lambda u, x, y: (u >> 3) | (u << (width - 3)),
        "bit_reverse(x[i])": lambda u, x, y: int(f"{u:0{width}b}"[::-1], 2),
        "byte_swap(x[i])": lambda u, x, y: int.from_bytes(u.to_bytes(width // 8, "little"), "big"),
        "add_sat(x[i], y[i])": lambda u, x, y: min(max(x + y, low), high),
        "sub_sat(x[i], y[i])": lambda u, x, y: min(max(x - y, low), high),
    }
    results = ", ".join(f"r{k}: T[N]" for k in range(len(expected)))
    clauses = "\n".join(f"r{k}[i] = {call}" for k, call in enumerate(expected))
    op = tl.parse(f"use std.bits\nop f[T: int](x: T[N], y: T[N]) -> ({results}) {{\n{clauses}\n}}").f
    random = np.random.default_rng(2).integers(low, high, (2, 60), dtype=dtype, endpoint=True)
    edges = np.array([0, 1, high, low], dtype)
    x, y = np.concatenate([random[0], np.repeat(edges, 4)]), np.concatenate([random[1], np.tile(edges, 4)])
    for (call, reference), found in zip(expected.items(), op(x, y), strict=True):
        numbers = [reference(int(a) & mask, int(a), int(b)) & mask for a, b in zip(x, y, strict=True)]
        assert [int(v) & mask for v in found] == numbers, call
