# Sourced by scripts/run after scripts/setup: the project's tools first, and nothing of the caller's that would change the outcome.
# Network settings (proxies, certificates, package indexes) stay as the caller has them.
venv=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)/.venv
source "$(dirname "${BASH_SOURCE[0]}")/certificates.sh"

unset PYTHONHOME PYTHONPATH PYTHONSTARTUP PYTHONWARNINGS PYTHONOPTIMIZE PYTEST_ADDOPTS PYTEST_PLUGINS
unset JAVA_OPTS JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS CLASSPATH HADOOP_CONF_DIR YARN_CONF_DIR
unset ${!AIRFLOW@} ${!_AIRFLOW@} ${!SPARK@} ${!PYSPARK@} ${!HADOOP@} ${!AWS@} ${!PG@} ${!MYSQL@} ${!UV_PROJECT@} ${!OPENLINEAGE@}

{ read -r _ && read -r _ && read -r JAVA_HOME; } <"$venv/.setup-done"
export JAVA_HOME VIRTUAL_ENV=$venv PATH=$venv/bin:$JAVA_HOME/bin:$PATH
export TZ=UTC NO_MKDOCS_2_WARNING=1
# DUCKLAKE_REFERENCE=1.5.4: another DuckDB judges than the locked one.
if [ -n "${DUCKLAKE_REFERENCE:-}" ]; then
  PYTHONPATH=$("$(dirname "${BASH_SOURCE[0]}")/reference" "$DUCKLAKE_REFERENCE")
  export PYTHONPATH
fi
# Without a UTF-8 locale the JVM garbles file names that are not ASCII. macOS has no C.UTF-8.
if [ "$(uname -s)" = Darwin ]; then export LC_ALL=en_US.UTF-8; else export LC_ALL=C.UTF-8; fi
