"""Values that a hostile writer puts where a path belongs, for a lake with a directory beside it to harm."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """Where a lake lies, and what it must not touch: ``beside`` has victims, ``other`` is another's file."""

    data: Path
    beside: Path
    other: Path

    def values(self) -> dict[str, str]:
        """Return the values by what is wrong with them; relative ones climb far enough from anywhere."""
        up = "../" * len(self.data.parts) + "x/../"
        victim = str(self.beside / "victim.parquet")
        relative = victim.lstrip("/")
        return {
            "absolute": victim,
            "absolute, no Parquet": str(self.beside / "victim.conf"),
            "absolute, a directory": f"{self.beside}/",
            "climbing": f"../../../beside/{Path(victim).name}",
            "climbing from the root": "../" * 40 + relative,
            "climbing in the middle": f"main/t/{up}{relative}",
            "climbing below the data path": f"{self.data}/main/../../../beside/victim.parquet",
            "climbing with a job's name": f"ducklake-00000000-0000-7000-8000-000000000001/{up}{relative}",
            "backslashes": "..\\..\\..\\beside\\victim.parquet",
            "percent": "%2e%2e/%2E%2E/%2e./beside/victim.parquet",
            "percent twice": "%252e%252e/%252e%252e/%252e%252e/beside/victim.parquet",
            "trailing": "ducklake-x/..",
            "only up": "..",
            "up and on": "../",
            "file URI": f"file://{victim}",
            "file URI, short": f"file:{victim}",
            "local URI": f"local://{victim}",
            "URI in a URI": f"generic://file://{victim}",
            "scheme of one letter": f"x://{victim}",
            "doubled slash": f"/{victim}",
            "many slashes": f"////{victim}",
            "dots": f"/./{relative}",
            "NUL": f"{victim}\0.json",
            "newline": f"\n{victim}",
            "newline and up": "x\n/../../../../beside/victim.parquet",
            "glob": f"{self.beside}/*",
            "glob up": "../../../*/*.parquet",
            "braces": f"{{{victim}}}",
            "another table's file": str(self.other),
            "another table's file, climbing": f"../other/{self.other.name}",
            "another table's directory": f"{self.other.parent}/",
            "very long": "../" * 1500 + relative,
            "very long name": "a" * 5000,
            "other scheme": "s3://evil/victim.parquet",
            "unknown scheme": "nonsense://victim.parquet",
            "memory": "memory://victim.parquet",
            "the root": "/",
            "nothing": "",
        }


# Files that others have are read where they are named as such: that is what adding files means.
FOREIGN = frozenset(
    {
        "absolute",
        "absolute, no Parquet",
        "absolute, a directory",
        "file URI",
        "local URI",
        "doubled slash",
        "many slashes",
        "dots",
        "another table's file",
        "another table's directory",
    }
)
