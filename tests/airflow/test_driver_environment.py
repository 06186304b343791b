"""What a driver is given in secret, no other process has: neither this one nor the driver of another task."""

import gc
import os
import sys

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_provider_ducklake.hooks.spark_submit import give_to_driver
from tests.airflow.spark_submit import SparkSubmit


class HookWithAnother(SparkSubmitHook):
    """Starts another driver while its own runs, as a second thread of the worker would."""

    another: SparkSubmitHook

    def _process_spark_submit_log(self, itr):
        assert "A_SECRET" not in os.environ
        self.another.submit("other.py")
        super()._process_spark_submit_log(itr)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("master", ["local[1]", "yarn"])
def test_drivers_that_run_at_the_same_time_see_their_own_secrets(
    master, set_connection, tmp_path, monkeypatch
):
    submit = SparkSubmit(tmp_path / "bin", [sys.executable, "-c", "print('done')"], monkeypatch)
    set_connection("spark_default", conn_type="spark", host=master)
    monkeypatch.setenv("SHARED", "what was there before")
    hook = HookWithAnother(conn_id="spark_default", env_vars={"MINE": "1"})
    hook.another = SparkSubmitHook(conn_id="spark_default")
    give_to_driver(hook, {"A_SECRET": "first", "SHARED": "for the driver"})
    give_to_driver(hook.another, {"ANOTHER_SECRET": "second"})

    hook.submit("job.py")

    environments = {call.arguments[-1]: call.environment for call in submit.calls}
    first, second = environments["job.py"], environments["other.py"]
    assert (first["A_SECRET"], first["SHARED"], "ANOTHER_SECRET" in first) == (
        "first",
        "for the driver",
        False,
    )
    assert (second["ANOTHER_SECRET"], second["SHARED"], "A_SECRET" in second) == (
        "second",
        "what was there before",
        False,
    )
    assert os.environ["SHARED"] == "what was there before"
    assert not any("first" in argument for call in submit.calls for argument in call.arguments)
    gc.collect()  # the hook leaves the driver's pipe open
