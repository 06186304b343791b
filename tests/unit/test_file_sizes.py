"""Files hold one idea: no crumbs, and none that nobody reads to its end."""

from pathlib import Path

import airflow_provider_ducklake

PACKAGE = Path(airflow_provider_ducklake.__file__).parent
ALONE = PACKAGE / "lake" / "spark" / "launcher" / "main.py"  # its folder shadows the standard library


def test_no_file_is_a_crumb_or_a_room_of_its_own():
    sizes = {
        file.relative_to(PACKAGE).as_posix(): len(file.read_text().splitlines())
        for file in PACKAGE.rglob("*.py")
        if file.name != "__init__.py" and file != ALONE
    }

    assert {name: size for name, size in sizes.items() if not 60 <= size <= 800} == {}
    assert len(sizes) <= 280
