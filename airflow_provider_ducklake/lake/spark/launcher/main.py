"""The file that is submitted: it calls the package, which is sent as ``py_files``."""

import os
import sys

# Spark puts the jars of packages on the path, too. Looking for modules and entry points reads all names in
# them: 400,000 in Amazon's bundle. A jar of that size has no Python in it.
_LARGEST_JAR_BYTES = 50 * 2**20


def _is_small(path: str) -> bool:
    try:
        return not path.endswith(".jar") or os.stat(path).st_size <= _LARGEST_JAR_BYTES  # noqa: PTH116 - loaded
    except OSError:
        return True


if __name__ == "__main__":
    sys.path[:] = filter(_is_small, sys.path)  # before another module is looked for

    from airflow_provider_ducklake.lake.spark.jobs.run import main

    sys.exit(main(sys.argv[1:]))
