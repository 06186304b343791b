"""Draw queries of views, and look from outside at those that the gate lets pass.

Each is held against Spark itself: which functions the JSON of its parsed plan calls, which classes its
analysed plan has, and if running it leaves a trace. ``python -m tests.spark.view_fuzz SEED SECONDS``
draws for a while.
"""

from __future__ import annotations

import json
import logging
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_provider_ducklake.lake.spark.jobs.lake_views import FUNCTIONS, PARTS, problem_of
from airflow_provider_ducklake.lake.spark.sessions.kind import kind_of
from airflow_provider_ducklake.lake.spark.sessions.settings import as_views_are_written
from tests.unit.sql.view_texts import HARMLESS, HOSTILE, ORDINARY

CANARY = "canary_of_views"
SET = f"java_method('java.lang.System', 'setProperty', '{CANARY}', 'ran')"
DEFAULT = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "b", "type": "string", "nullable": True, "metadata": {}},
            {"name": "a", "type": "string", "nullable": True, "metadata": {"EXISTS_DEFAULT": "version()"}},
        ],
    }
)
# Texts that would do more, each in a way of its own: they are drawn whole, and in pieces.
ATTACKS = (
    f"SELECT {SET} AS x FROM t",
    f"SELECT `java_method` ( 'java.lang.System' , 'setProperty' , '{CANARY}' , 'ran' ) FROM t",
    f"WITH DIV AS ( SELECT 1 AS a ) SELECT a , b FROM ( SELECT 1 AS FROM , FROM DIV {SET} ) AS q ( a , b )",
    f"WITH DIV AS ( SELECT 1 AS a ) SELECT 1 AS x JOIN DIV {SET}",
    f"SELECT sum ( id ) OVER w FROM t WINDOW w AS ( PARTITION BY {SET} )",
    f"SELECT * FROM VALUES ( 1 , {SET} ) AS v ( id , s )",
    f"SELECT /*+ REPARTITION(2, {SET}) */ id FROM t",
    f"SELECT transform ( items , x -> {SET} ) FROM t",
    f"SELECT id FROM t GROUP BY GROUPING SETS ( ( id ) , ( {SET} ) )",
    f"SELECT from_json ( '{{}}' , '{DEFAULT}' ) . a AS x",
    f"SELECT from_csv ( '1' , '{DEFAULT}' ) . a AS x",
    f"SELECT from_json ( '{{}}' , concat ( '' , '{DEFAULT}' ) ) . a AS x",
    "SELECT TRANSFORM ( id ) USING 'cat' AS ( s STRING ) FROM t",
    "FROM t MAP id USING 'cat' AS s",
    "FROM ( FROM t MAP id USING 'cat' AS s ) x SELECT *",
    "FROM t INSERT OVERWRITE DIRECTORY '/nowhere/x' USING parquet SELECT *",
    "SELECT system . builtin . java_method ( 'a' , 'b' )",
    "SELECT IDENTIFIER ( 'java_method' ) ( 'a' , 'b' )",
    "SELECT * FROM IDENTIFIER ( 'text.`/etc/passwd`' )",
    "SELECT value FROM text . `/etc/passwd`",
    "SELECT * FROM other_team",
    "SELECT s FROM ( WITH other_team AS ( SELECT s FROM t ) SELECT * FROM other_team ) , other_team",
    "EXECUTE IMMEDIATE 'SELECT 1'",
    "SELECT version ( ) , current_database ( ) , input_file_name ( ) FROM t",
    "SELECT xpath_string ( '<a>b</a>' , 'a' ) , from_xml ( '<a/>' , 'a INT' )",
    "SELECT a_function_of_a_user ( id ) FROM t",
    "SELECT * FROM range ( 3 ) , sql_keywords ( )",
)
_SHAPES = (  # of queries in which one parser sees an alias and the other a call
    "WITH {word} AS ( SELECT 1 AS a ) SELECT 1 AS x FROM {word} {call}",
    "WITH {word} AS ( SELECT 1 AS a ) SELECT FROM {word} {call}",
    "WITH {word} AS ( SELECT 1 AS a ) SELECT 1 AS FROM , FROM {word} {call}",
    "WITH {word} AS ( SELECT 1 AS a ) SELECT 1 AS JOIN , JOIN {word} {call}",
    "WITH {word} AS ( SELECT 1 AS a ) SELECT * FROM t , {word} {call}",
    "WITH {word} AS ( SELECT 1 AS a ) SELECT * FROM t LEFT {word} {call}",
    "SELECT * FROM t {word} {call}",
    "SELECT 1 {word} {call}",
    "SELECT id FROM t WHERE id {word} {call}",
    "SELECT 1 AS id FROM ( SELECT 1 ) {word} {call}",
)
_WORDS = r"""
ADD ALL ANTI ANY AS ASC AT BETWEEN BUCKET BY CASE CAST CLUSTER COLLATE CROSS CUBE CURRENT DATA DATE DESC
DISTINCT DISTRIBUTE DIV ELSE END ESCAPE EXCEPT EXISTS EXTRACT FETCH FILTER FIRST FOR FORMAT FROM FULL
FUNCTION GROUP HAVING IDENTIFIER IGNORE ILIKE IN INNER INSERT INTERSECT INTERVAL INTO IS JOIN LAST LATERAL
LEADING LEFT LIKE LIMIT LOAD MAP MINUS NATURAL NOT NULL NULLS OF OFFSET ON OR ORDER OUT OUTER OVER OVERLAY
PERCENT PIVOT POSITION QUALIFY RANGE RECORDREADER RECURSIVE REDUCE REGEXP REPEATABLE RESPECT RIGHT RLIKE
ROLLUP ROW ROWS SELECT SEMI SERDE SET SETS SOME SORT STREAM STRUCT SUBSTRING SYSTEM_TIME TABLE TABLESAMPLE
THEN TRANSFORM TRIM TRY_CAST UNBOUNDED UNION UNPIVOT USING VALUES VERSION VIEW WATERMARK WHEN WHERE WINDOW
WITH WITHIN XOR ( ) , . * + - / % = -> => : :: |> ; [ ] ? :x '' ` \\ /*+ */ /* -- ! { } $ @ 1 'x' x id
"""
WORDS = _WORDS.split()
# What may stand in the place of a value.
VALUES = (
    *("id", "s", "1", "'a'", "NULL", SET, "version()", f"from_json('{{}}', '{DEFAULT}').a"),
    *("upper(s)", "count(*)", "(SELECT max(id) FROM u)", "(SELECT s FROM other_team)", "items[0]"),
    *("transform(items, x -> x + 1)", "exists(items, x -> x > id)", "CASE WHEN paid THEN 1 ELSE 2 END"),
    *(
        "extract(year FROM ts)",
        "overlay(s PLACING 'x' FROM 2)",
        "trim(BOTH 'x' FROM s)",
        "date_add(DAY, 1, d)",
    ),
    *("timestampdiff(HOUR, ts, ts)", "s NOT LIKE ALL ('a')", "s ILIKE ANY ('a')", "paid IS NOT UNKNOWN"),
    *("s COLLATE UTF8_LCASE", "j:a.b", "first(a IGNORE NULLS)", "a BETWEEN 1 AND 2", "a << 1", "a::STRING"),
    *("a IN (SELECT a FROM u)", "struct(*)", "INTERVAL '1' DAY", "X'1F'", "current_date", "user", "id.x"),
    *("sum(a) OVER (PARTITION BY b ORDER BY c ROWS 1 PRECEDING)", "sum(a) FILTER (WHERE b > 1)"),
    *(
        "from_json(j, 'a INT').a",
        "from_json(j, schema_of_json('{}'))",
        "variant_get(parse_json(j), '$.a', 'int')",
    ),
)
WORDS_BEFORE_CALLS = [word for word in WORDS if word.isalpha()]
SEEDS = (*ATTACKS, *ORDINARY, *HOSTILE, *HARMLESS)


def texts(seed: int) -> Iterator[str]:
    """Yield the attacks, then drawn texts without end."""
    yield from ATTACKS
    draw = random.Random(seed)
    split = [text.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split() for text in SEEDS]
    while True:
        if draw.random() < 0.15:
            yield draw.choice(_SHAPES).format(word=draw.choice(WORDS_BEFORE_CALLS), call=SET)
            continue
        words = list(draw.choice(split))
        for _ in range(draw.randrange(1, 4)):
            _change(words, draw.choice(split), draw)
        yield draw.choice([" "] * 20 + ["\n", "/**/", "\t", "\u00a0", ""]).join(words)


def _change(words: list[str], other: list[str], draw: random.Random) -> None:
    """Change a text a little: a value, a word, or a piece of another text."""
    place, how = draw.randrange(len(words) + 1), draw.random()
    first, last = sorted(draw.randrange(len(other) + 1) for _ in range(2))
    values = [number for number, word in enumerate(words) if re.fullmatch(r"[a-z]\w*|\d+|'\w*'", word)]
    if values and draw.random() < 0.7:  # so that most texts can be parsed
        words[draw.choice(values)] = draw.choice(VALUES)
    elif how < 0.2:
        words.insert(place, draw.choice(WORDS))
    elif how < 0.4:
        del words[place : place + draw.randrange(1, 3)]
    elif how < 0.6:
        words[place : place + draw.randrange(3)] = other[first:last]
    elif how < 0.7:
        words[place : place + 1] = [draw.choice(WORDS)]
    elif how < 0.85:
        words[place:] = other[first:]
    else:
        words[place : place + draw.randrange(2)] = ["(", *other, ")"]


RELATIONS = {
    *("t", "u", "v", "a", "b", "c", "r", "orders", "customers", "stream"),
    *("my schema\0my table", "s\0orders", "a, b"),
}
_COLUMNS = """
SELECT id, CAST(id AS STRING) AS name, CAST(id AS STRING) AS s, DATE'2024-01-02' AS day,
    DATE'2024-01-02' AS d, id AS a, id AS b, id AS c, id AS e, id AS f, id AS g, id AS x, id AS y,
    1.5BD AS amount, 2.5BD AS price, array(id, 2) AS items,
    'a' AS product, id AS customer_id, id AS customer, 1 AS jan, 2 AS feb, 'k' AS month, '{}' AS j,
    TIMESTAMP'2024-01-02 03:04:05' AS ts, '<a/>' AS `a``b`, true AS paid
FROM VALUES (1L), (2L) AS ids(id)
"""
# Classes of an analysed plan that do more than compute rows of what is there.
_FORBIDDEN = re.compile(
    r"Command|Script|Reflection|UDF|UDTF|Udf|LogicalRelation|Hive|DataSourceV2|FileIndex|FileScan|Streaming|"
    r"Insert(?!Fraction)|Execute|Create(?!NamedStruct|Array|Map)|Drop|Truncate|Overwrite|CacheTable"
)


class Judge:
    """The gate, and what is seen of a text without it."""

    def __init__(self, spark: SparkSession, gate: Callable[[Any], str | None] | None = None) -> None:
        self.spark = spark
        self.analysed = 0
        self._gate = gate or (lambda plan: problem_of(plan, RELATIONS))
        rows = spark.sql(_COLUMNS).localCheckpoint()  # so that plans stay small
        for name in RELATIONS:
            if "\0" not in name:
                rows.createOrReplaceTempView(f"`{name}`")
        classes = {one.name: one.className for one in spark.catalog.listFunctions()}
        self._forbidden = set(classes.values()) - {classes.get(name) for name in (*FUNCTIONS, "between")}
        self._forbidden -= {one for one in self._forbidden if one.rpartition(".")[2] in PARTS}  # operators
        assert any(one.endswith("CallMethodViaReflection") for one in self._forbidden)

    def problem(self, text: str) -> str | None:
        """Say what the gate has against a text; a text that Spark cannot parse is refused as well."""
        try:
            with as_views_are_written(self.spark):
                plan = kind_of(self.spark).parsed(text)
        except (PySparkException, Py4JError) as error:
            return f"cannot be parsed: {error}"
        return self._gate(plan)

    def seen(self, text: str) -> list[str]:
        """List what a text does besides computing rows, as Spark's parser, its analysis and a run show it."""
        with as_views_are_written(self.spark):
            plan = self._json(self.spark._jsparkSession.sessionState().sqlParser().parsePlan(text))
        found = [f"calls {name}" for name in _called(plan) if name not in FUNCTIONS and name != "between"]
        jvm = self.spark._jvm.java.lang.System
        jvm.clearProperty(CANARY)
        with suppress(PySparkException, Py4JError):
            with as_views_are_written(self.spark):
                df = self.spark.sql(text)
            self.analysed += 1
            classes = set(_classes(self._json(df._jdf.queryExecution().analyzed())))
            bad = sorted(one for one in classes if one in self._forbidden or _FORBIDDEN.search(one))
            found += [f"has {one}" for one in bad]
            if CANARY in text or "EXISTS_DEFAULT" in text:
                rows = str(df.limit(5).collect())
                found += ["shows Spark's version"] if self.spark.version + " " in rows else []
        if jvm.getProperty(CANARY) is not None:
            found.append("ran")
        return found

    def _json(self, plan: Any) -> Any:
        return json.loads(plan.toJSON())


def _nodes(plan: Any) -> Iterator[dict[str, Any]]:
    rest = [plan]
    while rest:
        node = rest.pop()
        if isinstance(node, dict):
            yield node
            rest.extend(node.values())
        elif isinstance(node, list):
            rest.extend(node)


def _classes(plan: Any) -> Iterator[str]:
    yield from (str(node["class"]) for node in _nodes(plan) if "class" in node)


def _called(plan: Any) -> Iterator[str]:
    for node in _nodes(plan):
        for key in ("nameParts", "funcName", "name"):
            if str(node.get("class", node.get("product-class"))).endswith(
                {"nameParts": "UnresolvedFunction", "funcName": "FunctionIdentifier"}.get(
                    key, "TableValuedFunction"
                )
            ):
                yield str(node[key]).strip("[]").lower()


@dataclass
class Report:
    """What was drawn, and what passed that should not have."""

    drawn: int = 0
    passed: int = 0
    found: dict[str, list[str]] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        lines = [f"drawn {self.drawn}, passed {self.passed}, of these wrong {len(self.found)}"]
        return "\n".join([*lines, *(f"{problems}: {text!r}" for text, problems in self.found.items())])


def report(judge: Judge, seed: int, *, seconds: float = float("inf"), most: int = sys.maxsize) -> Report:
    """Judge texts for so long, or so many of them; PySpark would log each that cannot be parsed."""
    logging.getLogger("SQLQueryContextLogger").disabled = True
    done, end = Report(), time.monotonic() + seconds
    for text in texts(seed):
        if done.drawn == most or time.monotonic() > end:
            return done
        done.drawn += 1
        problem = judge.problem(text)
        if problem is not None:
            done.refused[
                problem.rpartition(" ")[2] if problem.startswith("has ") else problem.split()[0]
            ] += 1
            continue
        done.passed += 1
        if problems := judge.seen(text):
            done.found[text] = problems
    raise AssertionError("the texts have no end")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for key, value in {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.sql.shuffle.partitions", "1")
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    judge = Judge(session)
    outcome = report(judge, int(sys.argv[1]), seconds=float(sys.argv[2]))
    print(outcome, f"analysed {judge.analysed}", *outcome.refused.most_common(), sep="\n")  # noqa: T201 - the script's
    sys.exit(bool(outcome.found))
