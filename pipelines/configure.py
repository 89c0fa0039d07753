"""Makes `spark-pipeline.yml` for this machine.

Spark keeps a pipeline's checkpoints (how far each stream has read) in `storage`, which must be an absolute location.
Two pipelines must not share one, and nobody else should write there. The default is a folder of this project.

    python configure.py [--storage FOLDER_OR_URI]
"""

from __future__ import annotations

import argparse
from pathlib import Path

HERE = Path(__file__).resolve().parent
TEMPLATE, SPECIFICATION = HERE / "spark-pipeline.template.yml", HERE / "spark-pipeline.yml"


def main() -> None:
    """Writes the file, and makes the folder with access for its owner only."""
    parser = argparse.ArgumentParser(description="Makes spark-pipeline.yml for this machine.")
    parser.add_argument(
        "--storage", default=str(HERE / "storage"), help="where checkpoints are kept: a folder, or a URI (hdfs://…)"
    )
    storage = parser.parse_args().storage
    if "://" not in storage:
        folder = Path(storage).resolve()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        storage = folder.as_uri()
    SPECIFICATION.write_text(TEMPLATE.read_text().replace("STORAGE", storage))
    print(f"{SPECIFICATION}: storage is {storage}")


if __name__ == "__main__":
    main()
