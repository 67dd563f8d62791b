"""Kernels for extern operators, as LLVM IR: what tests give where a user would give a library of their own."""

from __future__ import annotations

_FLOAT = {"f32": "float", "f64": "double"}


def loop(name: str, params: str, body: str, *, count: str = "%n") -> str:
    """Return a function that runs `body` for `%i` from 0 to `count` and returns 0."""
    return f"""
define i32 @{name}({params}) {{
entry:
  %some = icmp sgt i64 {count}, 0
  br i1 %some, label %loop, label %done
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{body}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, {count}
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}}
"""


def scale(name: str = "scale_f32", dtype: str = "f32") -> str:
    """Return `y[i] = by * x[i]`."""
    t = _FLOAT[dtype]
    factor = "  %f = fptrunc double %by to float" if dtype == "f32" else "  %f = fadd double %by, 0.0"
    body = f"""{factor}
  %xp = getelementptr {t}, ptr %x, i64 %i
  %v = load {t}, ptr %xp
  %w = fmul {t} %v, %f
  %yp = getelementptr {t}, ptr %y, i64 %i
  store {t} %w, ptr %yp"""
    return loop(name, "ptr %y, ptr %x, i64 %n, double %by", body)


def ends(name: str = "ends") -> str:
    """Return `low[i] = min(x[i], z[i])` and `high[i] = max(x[i], z[i])`."""
    body = """  %xp = getelementptr float, ptr %x, i64 %i
  %zp = getelementptr float, ptr %z, i64 %i
  %a = load float, ptr %xp
  %b = load float, ptr %zp
  %less = fcmp olt float %a, %b
  %lo = select i1 %less, float %a, float %b
  %hi = select i1 %less, float %b, float %a
  %lp = getelementptr float, ptr %low, i64 %i
  %hp = getelementptr float, ptr %high, i64 %i
  store float %lo, ptr %lp
  store float %hi, ptr %hp"""
    return loop(name, "ptr %low, ptr %high, ptr %x, ptr %z, i64 %n", body)


def pick(name: str = "pick") -> str:
    """Return `y[i] = x[at[i]]`, which trusts `at`."""
    body = """  %ap = getelementptr i64, ptr %at, i64 %i
  %k = load i64, ptr %ap
  %xp = getelementptr float, ptr %x, i64 %k
  %v = load float, ptr %xp
  %yp = getelementptr float, ptr %y, i64 %i
  store float %v, ptr %yp"""
    return loop(name, "ptr %y, ptr %x, ptr %at, i64 %m, i64 %n", body)


def told(name: str = "told") -> str:
    """Return `y[i] =` the i-th of: how long a pack is, its sizes, a whole number, a truth value; of five elements."""
    return f"""
define i32 @{name}(ptr %y, ptr %x, i64 %rank, ptr %sizes, i64 %whole, i64 %truth) {{
  store i64 %rank, ptr %y
  %a = load i64, ptr %sizes
  %p1 = getelementptr i64, ptr %y, i64 1
  store i64 %a, ptr %p1
  %q = getelementptr i64, ptr %sizes, i64 1
  %b = load i64, ptr %q
  %p2 = getelementptr i64, ptr %y, i64 2
  store i64 %b, ptr %p2
  %p3 = getelementptr i64, ptr %y, i64 3
  store i64 %whole, ptr %p3
  %p4 = getelementptr i64, ptr %y, i64 4
  store i64 %truth, ptr %p4
  ret i32 0
}}
"""


def copies(width: int, name: str = "copies") -> str:
    """Return `y[i] = x[i]` of elements of so many bits, whatever they are."""
    body = f"""  %xp = getelementptr i{width}, ptr %x, i64 %i
  %v = load i{width}, ptr %xp
  %yp = getelementptr i{width}, ptr %y, i64 %i
  store i{width} %v, ptr %yp"""
    return loop(name, "ptr %y, ptr %x, i64 %n", body)


def returns(status: int, name: str = "returns") -> str:
    """Return a function that does nothing and returns `status`."""
    return f"define i32 @{name}(ptr %y, ptr %x, i64 %n) {{ ret i32 {status} }}"


def joins(name: str = "joins", *, apart: bool = False) -> str:
    """Return `y = x[0], x[1], …` one behind the other, or with `apart` the other way round: `each y` from one x."""
    params = "i64 %count, ptr %many, ptr %one" if apart else "ptr %one, i64 %count, ptr %many"
    source, target = ("%op", "%mp") if apart else ("%mp", "%op")
    return f"""
define i32 @{name}({params}, i64 %rank, ptr %sizes) {{
entry:
  br label %tensor
tensor:
  %k = phi i64 [ 0, %entry ], [ %k1, %after ]
  %begin = phi i64 [ 0, %entry ], [ %end, %after ]
  %left = icmp slt i64 %k, %count
  br i1 %left, label %found, label %done
found:
  %kp = getelementptr ptr, ptr %many, i64 %k
  %own = load ptr, ptr %kp
  %np = getelementptr i64, ptr %sizes, i64 %k
  %n = load i64, ptr %np
  br label %element
element:
  %i = phi i64 [ 0, %found ], [ %i1, %copied ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %copied, label %after
copied:
  %mp = getelementptr float, ptr %own, i64 %i
  %at = add i64 %begin, %i
  %op = getelementptr float, ptr %one, i64 %at
  %v = load float, ptr {source}
  store float %v, ptr {target}
  %i1 = add i64 %i, 1
  br label %element
after:
  %end = add i64 %begin, %n
  %k1 = add i64 %k, 1
  br label %tensor
done:
  ret i32 0
}}
"""
