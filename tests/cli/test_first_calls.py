"""What a first call of the command line gets wrong, and what it is told to write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import run

TEXT = """op scale(x: f32[M, N], attr alpha: float = 2.0) -> (y: f32[M, N]) {
    y[i, j] = alpha * x[i, j]
}
op crop(x: f32[N], size K) -> (y: f32[K]) where K <= N {
    y[k] = x[k]
}
op picked[T](x: T[3, 2 * N], at: i64[M] in 0..3, s: f32) -> (y: T[M]) {
    y[m] = x[at[m], 0 | 1]
}
"""
ROW = np.zeros((2, 3), "f4")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "f.tl", "scael", "x=f32[2,3]"), "did you mean `scale`?"),
        (("run", "f.tl", "scale"), "write `x=f32[4,4]`"),
        (("run", "f.tl", "crop", "x=f32[4]"), "write `K=8`"),
        (("run", "f.tl", "picked"), "write `x=f32[3,8] at=i64[4] s=f32[]`"),
        (("run", "f.tl", "scale", "x=f32[M,3]"), "sizes are numbers here, with commas between them: `x=f32[8,3]`"),
        (("run", "f.tl", "scale", "x=f32[2 3]"), "with commas between them: `x=f32[2,3]`"),
        (("run", "f.tl", "scale", "x=f32[2x3]"), "with commas between them: `x=f32[2,3]`"),
        (("run", "f.tl", "scale", f"x=f32[{'9' * 5000}]"), "with commas between them: `x=f32[8]`"),
        (("run", "f.tl", "scale", "x=f32[2,3"), "write `x=f32[2,3]` for random numbers"),
        (("run", "f.tl", "scale", "x=double(2, 3)"), "write `x=f64[2,3]` for random numbers"),
        (("run", "f.tl", "scale", "x=[2,3]"), "write `x=f32[2,3]` for random numbers"),
        (("run", "f.tl", "scale", "x=rand"), "write `x=f32[4,5]` for random numbers"),
        (("run", "f.tl", "scale", "x=float32[2,3]"), "write `x=f32[2,3]`"),
        (("run", "f.tl", "scale", "x=imgae.npy"), "did you mean `image.npy`?"),
        (("run", "scale", "f.tl"), "the file comes first"),
        (("run", "f.tl", "scale", "x=[2,3]"), "`numpy.save('data.npy', numpy.array([2,3], 'float32'))`"),
        (("run", "f.tl", "scale", "--x", "f32[2,3]"), "has no dashes: `x=f32[4,5]`"),
        (("run", "f.tl", "scale", "x=f32[2,3]", "-o", "none/y.npy"), "make the folder first: `mkdir -p "),
        (("run", "f"), "did you mean `f.tl`?"),
        (("run", "nothere.tl"), "there is `f.tl`"),
        (("run", "std.norm", "softmax", "x=f32[2,3]"), "`use std.norm` in a file"),
        (("explain", "softmax"), "`tl.std.softmax(x)`"),
        (("explain",), "`tensorlang explain T0301`"),
        (("list", "softmax"), "`tensorlang list std.norm`"),
        (("check", "."), "name its files: `*.tl`"),
        (("check", "f.py"), "operators stand in a file that ends in `.tl`"),
        (("version",), "`tensorlang --version`"),
        (("compile", "f.tl"), "files are compiled when they run"),
    ],
)
def test_a_command_that_is_wrong_is_told_what_to_write(
    arguments: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.tl").write_text(TEXT)
    (tmp_path / "f.py").write_text("import numpy as np\n")
    np.save(tmp_path / "image.npy", ROW)
    code, out, err = run(capsys, *arguments)
    assert code != 0
    assert told in " ".join((out + err).split())
