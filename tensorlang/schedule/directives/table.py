"""The table of directives. A directive is a `Kind` (`directives.kind`), in a file of its own or of its family, and a row here."""

from __future__ import annotations

from tensorlang.schedule.copies import LAYOUT, PACK
from tensorlang.schedule.directives.affine_map import AFFINE
from tensorlang.schedule.directives.bind import BIND
from tensorlang.schedule.directives.cache import CACHE
from tensorlang.schedule.directives.cluster import CLUSTER, MULTICAST
from tensorlang.schedule.directives.grids import PERSISTENT, PREDICATE, RASTER, SPLIT_K
from tensorlang.schedule.directives.kind import Kind
from tensorlang.schedule.directives.loops import (
    FUSE,
    ORDER,
    PARALLEL,
    PARTITION,
    REVERSE,
    SHIFT,
    SKEW,
    SPLIT,
    TILE,
    UNROLL,
    VECTORIZE,
)
from tensorlang.schedule.directives.partial import DERIVE
from tensorlang.schedule.directives.parts import CUT, PEEL
from tensorlang.schedule.directives.placing import AT, DISTRIBUTE, FOLD, ROOT, STORE_AT, STREAM
from tensorlang.schedule.directives.prefetch import PREFETCH
from tensorlang.schedule.directives.requirements import ASSUME, TRUST
from tensorlang.schedule.directives.rewrites import (
    BISECT,
    BLOCK,
    COMPOSE,
    FACTORIZE,
    FLATTEN,
    HOIST,
    INLINE,
    LIFT,
    NARROW,
    RFACTOR,
    SCAN,
    STORE,
    TABULATE,
    UNFOLD,
)
from tensorlang.schedule.directives.stages import SPECIALIZE, STAGES
from tensorlang.schedule.directives.tensorize import TENSORIZE
from tensorlang.schedule.directives.together import TOGETHER
from tensorlang.schedule.directives.trim import TRIM

_KINDS: tuple[Kind, ...] = (
    ASSUME,
    TRUST,
    SPLIT,
    TILE,
    ORDER,
    FUSE,
    DISTRIBUTE,
    TOGETHER,
    SKEW,
    SHIFT,
    REVERSE,
    AFFINE,
    PEEL,
    CUT,
    PARTITION,
    UNROLL,
    VECTORIZE,
    PARALLEL,
    BIND,
    TENSORIZE,
    AT,
    ROOT,
    STORE_AT,
    PACK,
    LAYOUT,
    FOLD,
    TRIM,
    STAGES,
    SPECIALIZE,
    STREAM,
    FLATTEN,
    HOIST,
    SCAN,
    COMPOSE,
    TABULATE,
    NARROW,
    BISECT,
    FACTORIZE,
    LIFT,
    INLINE,
    STORE,
    RFACTOR,
    BLOCK,
    UNFOLD,
    RASTER,
    PERSISTENT,
    CLUSTER,
    MULTICAST,
    SPLIT_K,
    PREDICATE,
    CACHE,
    PREFETCH,
    DERIVE,
)

TABLE: dict[str, Kind] = {kind.name: kind for kind in _KINDS}
"""The directives by their names; where several are checked, it is in this order."""

DIRECTIVES = frozenset(TABLE)

LATER = {"tail"}
