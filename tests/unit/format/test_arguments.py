"""What users give for arguments of another kind: a text of it, or an error that names the argument."""

import inspect
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from airflow_provider_ducklake.lake import Lake, LakeSession
from airflow_provider_ducklake.lake.catalog.drafting.transaction import LakeTransaction
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.format.arguments import given, takes_arguments
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName

WRONG = [
    True,
    5,
    1.5,
    Decimal("2.50"),
    date(2024, 1, 1),
    Path("/a/b"),
    ["x", 7],
    ("x", 7),
    {"x": 1},
    {1},
    object(),
    b"x",
    timedelta(1),
    datetime,
    None,
]


def test_what_may_be_a_text_is_taken_as_its_text():
    taken = [given("message", "str", one) for one in (20261129, date(2024, 1, 1), Path("/a/b"), "x")]

    assert taken == ["20261129", "2024-01-01", "/a/b", "x"]
    assert given("table", "TableName", 2024) == "2024"
    assert given("table", "TableName", ["main", 2024]) == ("main", "2024")
    assert given("table", "TableName", QualifiedName.of("a.b")) == QualifiedName.of("a.b")
    assert given("columns", "Sequence[str] | None", [1, "x"]) == ["1", "x"]
    types = "Mapping[str, str | DuckLakeType] | pa.Schema"
    assert given("columns", types, {"id": "int64"}) == {"id": "int64"}
    with pytest.raises(InvalidInputError, match=r"columns\['id'\] is <class 'int'>"):
        given("columns", types, {"id": int})
    assert given("value", "Literal | SqlExpression", object) is object, (
        "an annotation with other words is left alone"
    )


@pytest.mark.parametrize("cls", [Lake, LakeSession, LakeTransaction])
def test_each_public_method_takes_wrong_kinds_or_names_the_argument(cls):
    """Each argument of each method with each wrong kind: the method itself is not run."""
    seen = refused = 0
    for method, found in vars(cls).items():
        function = getattr(found, "__func__", found)
        if method.startswith("_") or not inspect.isfunction(function):
            continue
        signature = inspect.signature(function)
        assert not signature.parameters or hasattr(function, "__wrapped__"), f"{method} has no gate"
        for name, parameter in signature.parameters.items():
            for value in WRONG if isinstance(parameter.annotation, str) else ():
                try:
                    taken = given(name, parameter.annotation, value)
                except InvalidInputError as error:
                    seen += str(error).startswith(f"{name} ")
                    refused += 1
                    continue
                is_text = parameter.annotation in {"str", "str | None"} and taken is not None
                assert not is_text or isinstance(taken, str), (method, name, value)
    assert seen == refused > 100


def test_the_gate_leaves_a_signature_as_it_is():
    def method(self, table: "str", *more: "str", message: "str | None" = None) -> "tuple[str, ...]":
        return (self, table, message, *more)

    taking = takes_arguments(method)

    assert inspect.signature(taking) == inspect.signature(method)
    assert taking(None, 5, "x", message=7) == (None, "5", "7", "x")
    with pytest.raises(InvalidInputError, match=r"^table is True, which is bool\. Give one of: a text"):
        taking(None, table=True)
