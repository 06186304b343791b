"""Names of schemas, tables and columns: parse what users type, quote what the catalog stores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from typing import TypeAlias

from ...errors import CatalogError, InvalidNameError, one_line

DEFAULT_SCHEMA = "main"
_PART = re.compile(r'(?:[Uu]&)?"(?:[^"]|"")*"|[^".]+')
_ESCAPE = re.compile(r"\\(\\|[0-9A-Fa-f]{4})")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def quote(name: str) -> str:
    """Return ``name`` as a quoted SQL identifier.

    >>> quote('we"ird')
    '"we""ird"'
    """
    return '"' + name.replace('"', '""') + '"'


@lru_cache
def quote_if_needed(name: str) -> str:
    """Return ``name`` as it is when SQL reads it back unchanged, quoted otherwise.

    >>> quote_if_needed("orders"), quote_if_needed("or ders")
    ('orders', '"or ders"')
    """
    return name if _PLAIN.match(name) else quote(name)


def shown(name: str) -> str:
    r"""Return ``name`` as people read it in a line, and ``split_parts`` reads it back.

    >>> print(shown("orders"), shown("or ders"), shown("or\nders"))
    orders "or ders" U&"or\000Aders"
    """
    if one_line(name) == name:
        return quote_if_needed(name)
    kept = name.replace("\\", "\\\\")
    escaped = "".join(char if one_line(char) == char else f"\\{ord(char):04X}" for char in kept)
    return f"U&{quote(escaped)}"


_NOT_STORABLE = re.compile("[\0\ud800-\udfff]")  # NUL, and halves of surrogate pairs


def is_storable(text: str) -> bool:
    """Return True if every catalog database can store a text."""
    return _NOT_STORABLE.search(text) is None


def check_name(name: str, kind: str) -> str:
    """Return ``name`` if the catalog can hold it."""
    if not name or not is_storable(name):
        raise InvalidNameError(
            f"{name!r} cannot name a {kind}: a name has at least one character, no NUL and no unpaired "
            "surrogate."
        )
    return name


INTERNAL_PREFIX = "_ducklake_internal_"


@lru_cache(maxsize=8192)
def fold(name: str) -> str:
    """Return the form under which names are compared: DuckDB ignores the case of ASCII letters only.

    >>> fold("Straße ÄB")
    'straße Äb'
    """
    return "".join(char.lower() if char.isascii() else char for char in name)


def split_parts(text: str) -> list[str]:
    """Split a dotted name into its parts, honouring double quotes.

    In standard SQL's ``U&"…"`` a backslash and four digits are a character.

    >>> split_parts('sales."or.ders"')
    ['sales', 'or.ders']
    """
    parts: list[str] = []
    position = 0
    while True:
        match = _PART.match(text, position)
        if match is None:
            raise InvalidNameError(
                f"Cannot read {text!r} as a name. Quote parts with special characters: 'schema.\"odd name\"'."
            )
        part = match.group()
        parts.append(_unquoted(part))
        position = match.end()
        if position == len(text):
            return parts
        if text[position] != ".":
            raise InvalidNameError(f"Cannot read {text!r} as a name: unexpected {text[position:]!r}.")
        position += 1


def _unquoted(part: str) -> str:
    if not part.endswith('"'):
        return part
    prefix, _, quoted = part.partition('"')
    name = quoted[:-1].replace('""', '"')
    return _ESCAPE.sub(_character, name) if prefix else name


def _character(escape: re.Match[str]) -> str:
    return "\\" if escape[1] == "\\" else chr(int(escape[1], 16))


FoldedName: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, order=True)
class SchemaPath:
    """The full name of a schema: the names of the schemas that it lies in, outermost first, and its own.

    Before DuckLake 1.1 schemas lie in no other one.
    """

    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its own name."""
        return self.parts[-1]

    @property
    def parent(self) -> SchemaPath | None:
        """The schema that it lies in; None: it lies in none."""
        return SchemaPath(self.parts[:-1]) if len(self.parts) > 1 else None

    @property
    def folded(self) -> FoldedName:
        """The form under which schemas are compared."""
        return tuple(map(fold, self.parts))

    def is_below(self, other: SchemaPath) -> bool:
        """Return True if it is the other schema, or lies in it."""
        return self.folded[: len(other.parts)] == other.folded

    @classmethod
    def of(cls, schema: SchemaName) -> SchemaPath:
        """Return the path for what a user gave: names with dots between them, where they can be read so.

        >>> SchemaPath.of("sales.europe").parts, SchemaPath.of('"sales.europe"').parts
        (('sales', 'europe'), ('sales.europe',))
        >>> SchemaPath.of('we"ird').parts
        ('we"ird',)
        """
        if isinstance(schema, SchemaPath):
            return schema
        parts: Sequence[str] = schema
        if isinstance(schema, str):
            try:
                parts = split_parts(schema)
            except InvalidNameError:
                parts = (schema,)
        if not parts:
            raise InvalidNameError("A schema has a name.")
        return cls(tuple(check_name(part, "schema") for part in parts))

    def __str__(self) -> str:
        return ".".join(map(shown, self.parts))


@dataclass(frozen=True, slots=True, order=True)
class QualifiedName:
    """A schema and the name of a table or view in it."""

    schema: SchemaPath
    name: str

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of its schemas, outermost first, and its own."""
        return *self.schema.parts, self.name

    @property
    def folded(self) -> FoldedName:
        """The form under which qualified names are compared."""
        return *self.schema.folded, fold(self.name)

    @classmethod
    def of(cls, table: TableName) -> QualifiedName:
        """Return the qualified name for what a user gave; one part alone lies in schema ``main``.

        >>> QualifiedName.of('sales."or.ders"').name
        'or.ders'
        >>> orders = QualifiedName.of("sales.europe.orders")
        >>> orders.schema.parts, QualifiedName.of((orders.schema, orders.name)) == orders
        (('sales', 'europe'), True)
        """
        if isinstance(table, QualifiedName):
            return table
        parts: list[str] = split_parts(table) if isinstance(table, str) else []
        for part in () if isinstance(table, str) else table:
            parts += part.parts if isinstance(part, SchemaPath) else [part]
        *above, name = parts or [""]
        return cls(SchemaPath.of(tuple(above) or MAIN), check_name(name, "table"))

    def __str__(self) -> str:
        return f"{self.schema}.{shown(self.name)}"


def near(name: QualifiedName, names: Iterable[QualifiedName]) -> tuple[str, ...]:
    """Return up to three names that a user may have meant: the same in another schema first.

    >>> shop, sales = (QualifiedName.of(one) for one in ("shop.orders", "sales.oders"))
    >>> near(QualifiedName.of("shop.oders"), [shop, sales]), near(QualifiedName.of("lines"), [shop, sales])
    (('sales.oders', 'shop.orders'), ())
    """
    known = {".".join(one.folded): one for one in islice(names, _MOST_COMPARED)}
    same = [text for text, one in known.items() if one.folded[-1] == name.folded[-1]]
    close = get_close_matches(".".join(name.folded), known, cutoff=0.7)
    return tuple(str(known[one]) for one in [*dict.fromkeys([*same, *close])][:3])


_MOST_COMPARED = 10_000
MAIN = SchemaPath((DEFAULT_SCHEMA,))
SchemaName: TypeAlias = str | tuple[str, ...] | SchemaPath  # what a user may give
TableName: TypeAlias = str | tuple[str, ...] | tuple[SchemaPath, str] | QualifiedName


# The words that DuckDB quotes when it writes a name into SQL, as it does in the DDL of inlined tables.
#
# *Source:* ``duckdb_keywords()``, all categories.


_WORDS = """
abort absolute access action add admin after aggregate all also alter always analyse analyze and anti any
array as asc asof assertion assignment asymmetric at attach attribute authorization backward before begin
between bigint binary bit boolean both by cache call called cascade cascaded case cast catalog centuries
century chain char character characteristics check checkpoint class close cluster coalesce collate
collation column columns comment comments commit committed compression concurrently configuration conflict
connection constraint constraints content continue conversion copy cost create cross csv cube current
cursor cycle data database day days deallocate dec decade decades decimal declare default defaults
deferrable deferred definer delete delimiter delimiters depends desc describe detach dictionary disable
discard distinct do document domain double drop each else enable encoding encrypted end enum error escape
event except exclude excluding exclusive execute exists explain export export_state extension extensions
external extract false family fetch filter first float following for force foreign forward freeze from
full function functions generated glob global grant granted group grouping grouping_id groups handler
having header hold hour hours identity if ignore ilike immediate immutable implicit import in include
including increment index indexes inherit inherits initially inline inner inout input insensitive insert
install instead int integer intersect interval into invoker is isnull isolation join json key label lambda
language large last lateral leading leakproof left level like limit listen load local location lock locked
logged macro map mapping match matched materialized maxvalue merge method microsecond microseconds
millennia millennium millisecond milliseconds minute minutes minvalue mode month months move name names
national natural nchar new next no none not nothing notify notnull nowait null nullif nulls numeric object
of off offset oids old on only operator option options or order ordinality others out outer over overlaps
overlay overriding owned owner parallel parser partial partition partitioned passing password percent
persistent pivot pivot_longer pivot_wider placing plans policy position positional pragma preceding
precision prepare prepared preserve primary prior privileges procedural procedure program publication
qualify quarter quarters quote range read real reassign recheck recursive ref references referencing
refresh reindex relative release rename repeatable replace replica reset respect restart restrict
returning returns revoke right role rollback rollup row rows rule sample savepoint schema schemas scope
scroll search second seconds secret security select semi sequence sequences serializable server session
set setof sets share show similar simple skip smallint snapshot some sorted source sql stable standalone
start statement statistics stdin stdout storage stored strict strip struct subscription substring
summarize symmetric sysid system table tables tablesample tablespace target temp template temporary text
then ties time timestamp to trailing transaction transform treat trigger trim true truncate trusted
try_cast type types unbounded uncommitted unencrypted union unique unknown unlisten unlogged unpack
unpivot until update use user using vacuum valid validate validator value values varchar variable variadic
varying verbose version view views virtual volatile week weeks when where whitespace window with within
without work wrapper write xml xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces
xmlparse xmlpi xmlroot xmlserialize xmltable year years yes zone
"""
KEYWORDS = frozenset(_WORDS.split())

# Of the kinds `reserved` and `type_function`: no bare name of a table or column.
_RESERVED = """
all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create
default deferrable desc describe distinct do else end except false fetch for foreign from group having in
initially intersect into lambda lateral leading limit not null offset on only or order pivot pivot_longer
pivot_wider placing primary qualify references returning select show some summarize symmetric table then
to trailing true union unique unpivot using variadic when where window with
anti asof at authorization binary by collation columns concurrently cross freeze full generated glob ilike
inner is isnull join left like map natural notnull outer overlaps positional right semi similar struct
tablesample try_cast unpack verbose
"""
RESERVED = frozenset(_RESERVED.split())
# Of the kind `column_name`: no bare name of a function, most have a grammar of their own.
_NOT_CALLED = """
between bigint bit boolean char character coalesce dec decimal exists extract float grouping grouping_id
inout int integer interval national nchar none nullif numeric out overlay position precision real row setof
smallint substring time timestamp treat trim values varchar xmlattributes xmlconcat xmlelement xmlexists
xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable
"""
NOT_CALLED = frozenset(_NOT_CALLED.split())


# How names are written into the SQL texts that a catalog keeps.


def written(name: str) -> str:
    """Return a name as SQL reads it back, quoted where DuckDB quotes it: odd characters, and any keyword.

    >>> written("total"), written("Total"), written("Day"), written("order")
    ('total', 'Total', '"Day"', '"order"')
    """
    return quote(name) if fold(name) in KEYWORDS else quote_if_needed(name)


# The full names of schemas that lie in each other. *Source:* docs/sources.md, nested schemas.


def schema_paths(rows: Iterable[tuple[int, int | None, str]]) -> dict[int, SchemaPath]:
    """Return the full names of schemas by id; each row is an id, the id of the schema it lies in, and a name.

    One that lies in a schema that is not there counts as dropped, with all that lies in it.

    >>> {id_: str(path) for id_, path in schema_paths([(2, 1, "b"), (1, None, "a"), (3, 9, "c")]).items()}
    {1: 'a', 2: 'a.b'}
    """
    named = {schema_id: (parent, name) for schema_id, parent, name in rows}
    found: dict[int, SchemaPath | None] = {}
    for schema_id in named:
        _find(schema_id, named, found)
    return {schema_id: path for schema_id, path in found.items() if path is not None}


def schema_circles(parents: Mapping[int, int | None]) -> Iterator[tuple[int, ...]]:
    """Yield the schemas of each circle; ``parents`` are the schemas in which they lie, by id.

    >>> list(schema_circles({1: 2, 2: 3, 3: 2, 4: 4, 5: None, 6: 9}))
    [(2, 3), (4,)]
    """
    seen: set[int] = set()
    for start in parents:
        way: dict[int, int] = {}
        above: int | None = start
        while above is not None and above in parents and above not in seen and above not in way:
            way[above] = len(way)
            above = parents[above]
        if above in way:
            yield tuple(way)[way[above] :]
        seen.update(way)


def _find(start: int, named: dict[int, tuple[int | None, str]], found: dict[int, SchemaPath | None]) -> None:
    """Collect the paths of a schema and of those above it, top down; not recursive: depth is unlimited."""
    way: dict[int, None] = {}
    above: int | None = start
    while above is not None and above in named and above not in found:
        if above in way:
            raise CatalogError(
                f'Schema "{named[above][1]}" (id {above}) lies in itself: the column parent_schema_id of '
                "ducklake_schema leads round in a circle. Correct it, or go back to a backup of the catalog."
            )
        way[above] = None
        above = named[above][0]
    path = None if above is None else found.get(above)
    is_there = above is None or path is not None
    for schema_id in reversed(way):
        parts = () if path is None else path.parts
        path = SchemaPath((*parts, named[schema_id][1])) if is_there else None
        found[schema_id] = path
