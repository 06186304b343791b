"""What the statements for MySQL and MariaDB say, also for servers that the tests do not have."""

import pytest

from airflow_provider_ducklake.lake.catalog.dialects.grants import Wanted, mysql_grants
from airflow_provider_ducklake.lake.errors import InvalidInputError, InvalidNameError
from airflow_provider_ducklake.lake.spec.versions import Role, RoleNames

RIGHTS = {"ducklake_table": ("SELECT", "INSERT", "UPDATE")}


@pytest.mark.parametrize(
    ("has_patterns", "database"), [(True, r"`my\_lake\%`"), (False, "`my_lake%`")], ids=["usual", "exact"]
)
def test_a_database_is_a_pattern_unless_the_server_takes_names_as_they_are(has_patterns, database):
    wanted = Wanted(Role.MAINTAINER, RoleNames(), RIGHTS)

    (statement,) = mysql_grants(wanted, "my_lake%", has_patterns=has_patterns)

    assert statement.endswith(f"ALTER, DROP, INDEX ON {database}.* TO `ducklake_maintainer`")


@pytest.mark.parametrize(
    ("name", "account"),
    [
        ("etl", "`etl`"),
        ("etl@10.0.0.%", "`etl`@`10.0.0.%`"),
        ("me@home@%", "`me@home`@`%`"),
        ("@home", "`@home`"),
        ("a`b", "`a``b`"),
    ],
)
def test_an_account_has_a_host_after_the_last_at(name, account):
    wanted = Wanted(Role.WRITER, RoleNames(writer=name), RIGHTS)

    statements = list(mysql_grants(wanted, "my_lake", has_patterns=True))

    assert statements == [f"GRANT SELECT, INSERT, UPDATE ON `my_lake`.`ducklake_table` TO {account}"]


def test_a_reader_only_reads():
    wanted = Wanted(Role.READER, RoleNames(), RIGHTS)

    assert list(mysql_grants(wanted, "d", has_patterns=True)) == [
        "GRANT SELECT ON `d`.`ducklake_table` TO `ducklake_reader`"
    ]


def test_roles_have_names_of_their_own():
    with pytest.raises(InvalidInputError, match="user of its own"):
        RoleNames(reader="me", maintainer="me")
    with pytest.raises(InvalidNameError, match="reserves it"):
        RoleNames(writer="Public")
    with pytest.raises(InvalidInputError, match="reader, writer, maintainer"):
        Role.of("admin")
