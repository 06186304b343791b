"""What comes of a verb on a lake that somebody damaged: an answer or a typed error, and nothing else."""

import shutil
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import airflow_provider_ducklake
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError
from tests.reference.catalogs import CatalogDatabase

Verb = Callable[[Lake], object]


@dataclass(frozen=True)
class Original:
    """A lake that is copied before each try."""

    catalog: CatalogDatabase

    @property
    def area(self) -> Path:
        return Path(self.catalog.data_path).parent

    def keep(self) -> None:
        """Make the lake as it is now the one that comes back."""
        shutil.copytree(self.area, self.area.with_name("first"))

    def restore(self) -> None:
        shutil.rmtree(self.area)
        shutil.copytree(self.area.with_name("first"), self.area)


@dataclass
class Outcomes:
    """What verbs came to, and which of that is wrong."""

    seen: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def note(self, catalog: CatalogDatabase, what: str, name: str, verb: Verb) -> None:
        """Run a verb on a lake of which ``what`` is odd."""
        said = outcome(catalog, verb)
        self.seen[said if said[0] != "!" else "!"] += 1
        if said[0] == "!":
            self.wrong.append(f"{what}, {name}: {said}")

    def check(self) -> None:
        """Nothing was wrong, and there were answers and refusals."""
        assert not self.wrong, "\n".join([*self.wrong, f"{dict(self.seen)}"])
        assert self.seen["answer"]
        assert len(self.seen) > 1


def outcome(catalog: CatalogDatabase, verb: Verb) -> str:
    """Return "answer", the name of a typed error, or a line that begins with "!"."""

    def connected(_: object) -> None:
        with Lake.connect(catalog.sqlalchemy_url) as lake:
            verb(lake)

    return outcome_in(None, connected)


def outcome_in(lake: Lake | None, verb: Callable[..., object]) -> str:
    """Return the same of a verb on a lake that is open."""
    try:
        verb(lake)
    except DuckLakeError as error:
        return type(error).__name__
    except Exception as error:  # noqa: BLE001 - what is looked for
        return f"! {own_frame(error)}: {type(error).__name__}: {error!s:.100}"
    return "answer"


def own_frame(error: Exception) -> str:
    """Return the deepest place of ours that an error came through."""
    root = str(Path(airflow_provider_ducklake.__file__).parent)
    frames = traceback.extract_tb(error.__traceback__)
    deepest = [*frames[-1:], *(frame for frame in frames if frame.filename.startswith(root))][-1]
    return f"{Path(deepest.filename).name}:{deepest.lineno}"
