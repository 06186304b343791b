"""What tests take from Airflow's inside, by the names that the installed version has for it."""

import airflow

try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:  # Airflow 3.1
    from airflow.models.dagbag import DagBag
try:
    from airflow.serialization.serialized_objects import DagSerialization
except ImportError:  # Airflow 3.1
    from airflow.serialization.serialized_objects import SerializedDAG as DagSerialization  # type: ignore[attr-defined]
try:
    from airflow.serialization.definitions.dag import SerializedDAG
except ImportError:  # Airflow 3.1
    from airflow.serialization.serialized_objects import SerializedDAG  # type: ignore[attr-defined]

# In a whole DAG run in one process, 3.1 takes the time of a sensor's first look for a string.
CAN_RESCHEDULE_IN_PROCESS = not airflow.__version__.startswith("3.1.")
# 3.1 takes the user out of an asset's URI, with a warning, before the provider sees it.
DROPS_USERS = airflow.__version__.startswith("3.1.")

__all__ = ["CAN_RESCHEDULE_IN_PROCESS", "DROPS_USERS", "DagBag", "DagSerialization", "SerializedDAG"]
