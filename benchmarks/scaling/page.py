"""Write measurements into a page of the documentation, between its markers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaling.laws import law_of
from tests.scale.models import DIRECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    Sizes = Mapping[str, Mapping[str, Mapping[str, Any]]]  # figures by size and call

BEGIN, END = "<!-- begin: benchmarks/scale.py --write -->", "<!-- end -->"
_CATALOGS = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
_WITH_INDEXES = "+indexes"
_QUICK = 0.05  # seconds; what takes less at every size, and grows by no law, is named only
_NOISE_SECONDS, _NOISE_MEGABYTES = 0.005, 4.0


def write(page: Path, results: Mapping[str, Mapping[str, Sizes]]) -> None:
    """Replace what lies between the page's markers by tables of the results."""
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END, 1)[1]
    made = "\n".join(_tables(results))
    page.write_text(f"{before}{BEGIN}\n\n{made}\n{END}{after}", encoding="utf-8")


def _tables(results: Mapping[str, Mapping[str, Sizes]]) -> Iterator[str]:
    for name, direction in DIRECTIONS.items():
        found = {catalog: of[name] for catalog, of in results.items() if name in of}
        if not found:
            continue
        yield f"### {name.capitalize()}\n"
        yield f"Counted: {direction.counted}.\n"
        for catalog, title in _CATALOGS.items():
            if catalog in found:
                yield from _growth(title, found[catalog])
            if catalog in found and f"{catalog}{_WITH_INDEXES}" in found:
                yield from _indexed(title, found[catalog], found[f"{catalog}{_WITH_INDEXES}"])


def _growth(title: str, by_size: Sizes) -> Iterator[str]:
    sizes = sorted(by_size, key=int)
    calls = list(dict.fromkeys(call for size in sizes for call in by_size[size]))
    rows = {call: [by_size[size].get(call, {}) for size in sizes] for call in calls}
    quick = [call for call in calls if _is_quick(rows[call])]
    heads = [f"{int(size):,}" for size in sizes]
    yield f"#### {title}\n"
    if any(call not in quick for call in calls):
        yield f"| call | statements | {' | '.join(heads)} | time is | memory | memory is |"
        yield "|---|---|" + "---|" * len(heads) + "---|---|---|"
        yield from (_row(call, sizes, rows[call]) for call in calls if call not in quick)
        yield ""
    if quick:
        named = ", ".join(f"`{call}`" for call in quick)
        yield f"Below {1000 * _QUICK:.0f} ms at every size measured: {named}.\n"


def _is_quick(figures: Sequence[Mapping[str, Any]]) -> bool:
    measured = [one for one in figures if one]
    return all(one.get("seconds", _QUICK) < _QUICK for one in measured)


def _row(call: str, sizes: Sequence[str], figures: Sequence[Mapping[str, Any]]) -> str:
    cells = [
        f"`{call}`",
        _numbers([one.get("statements") for one in figures]),
        *(_time(one) for one in figures),
        _law(sizes, figures, "seconds", _NOISE_SECONDS),
        _memory(figures),
        _law(sizes, figures, "megabytes", _NOISE_MEGABYTES),
    ]
    return f"| {' | '.join(cells)} |"


def _indexed(title: str, plain: Sizes, indexed: Sizes) -> Iterator[str]:
    """Compare calls that an index makes a difference to, at the largest size that has both."""
    size = max(set(plain) & set(indexed), key=int)
    rows = [
        (call, before, indexed[size][call])
        for call, before in plain[size].items()
        if call in indexed[size] and _differ(before, indexed[size][call])
    ]
    yield f"#### {title} with `create_indexes()`, at {int(size):,}\n"
    if not rows:
        yield "No call takes half or twice the time.\n"
        return
    yield "| call | without | with indexes |"
    yield "|---|---|---|"
    yield from (f"| `{call}` | {_time(before)} | {_time(after)} |" for call, before, after in rows)
    yield ""


def _differ(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether one takes twice the time of the other, and time that a person notices."""
    times = [one.get("seconds", 1e9) for one in (before, after)]
    return max(times) > _QUICK and max(times) > 2 * min(times)


def _numbers(counts: Sequence[int | None]) -> str:
    known = list(dict.fromkeys(str(one) for one in counts if one is not None))
    return " → ".join(known)


def _time(figures: Mapping[str, Any]) -> str:
    seconds = figures.get("seconds")
    if seconds is None:
        return figures.get("error", "").split(":")[0]
    if seconds < 1:
        return f"{1000 * seconds:.2g} ms" if seconds < 0.1 else f"{1000 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def _memory(figures: Sequence[Mapping[str, Any]]) -> str:
    """Return the memory at the largest size that is known."""
    known = [one["megabytes"] for one in figures if "megabytes" in one]
    return f"{known[-1]:.0f} MB" if known else ""


def _law(sizes: Sequence[str], figures: Sequence[Mapping[str, Any]], name: str, noise: float) -> str:
    known = [(int(size), one[name]) for size, one in zip(sizes, figures, strict=True) if name in one]
    return law_of([size for size, _ in known], [one for _, one in known], noise)
