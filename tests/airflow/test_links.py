"""The link from a task to its Spark application, as Airflow asks for it at the end of a task."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.hooks.spark_submit import application_id_in
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from tests.airflow.dags import FakeTaskInstance
from tests.airflow.spark_submit import stand_in


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("21:53:24 INFO Spark application local-1795643595613\n", "local-1795643595613"),
        ("21:53:24 INFO Spark application application_1795644167263_0002", "application_1795644167263_0002"),
        ("21:53:24 INFO Spark application app-20261125210527-0000", "app-20261125210527-0000"),
        ("21:53:24 INFO Writing main.t", None),
    ],
)
def test_the_driver_says_its_application(line, found):
    assert application_id_in(line) == found


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # SparkSubmitHook's pipe
@pytest.mark.parametrize("server", ["https://history.example.com/", None])
def test_the_link_leads_to_the_history_server_of_the_connection(
    server, sqlite_catalog, connect, set_connection, tmp_path, monkeypatch
):
    connect(sqlite_catalog, data_path=sqlite_catalog.data_path)
    set_connection("spark_default", conn_type="spark", host="local[1]", extra={"history_server": server})
    says = "print('21:53:24 INFO Spark application local-1795643595613')"
    stand_in(tmp_path / "bin", monkeypatch).meanwhile(says)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "in.parquet")
    DuckLakeHook().get_or_create_lake()
    operator = DuckLakeSparkInsertOperator(
        task_id="insert", table="t", source=str(tmp_path / "in.parquet"), create_table=True
    )
    (link,) = operator.operator_extra_links
    assert link.get_link(operator, ti_key=None) == ""

    operator.execute({"ti": FakeTaskInstance("insert"), "logical_date": None})

    links = [one.get_link(operator, ti_key=None) for one in operator.operator_extra_links]
    assert links == (["https://history.example.com/history/local-1795643595613/"] if server else [])
