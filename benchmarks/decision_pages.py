"""The pages to decide by as images, from a run folder: what docs/decision.md shows.

python -m benchmarks.decision_pages runs/quickstart docs/decision

Writes PREFIX-1.png and PREFIX-2.png: the very pages of the run's PDF, in 256 colours.
"""

import argparse
import io
import sys
from pathlib import Path

from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.settings import catalog
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.document import compose
from fedaudit.reports.renderers.pdf import pages

DOTS = 96.0  # per inch: an A4 page is 794 by 1123
FRONT = 2  # pages


def decision_pages(run: Path, prefix: Path) -> list[Path]:
    """Raises UserError where the folder has no audit."""
    from PIL import Image

    if not run.is_dir():
        raise UserError(f"no run folder {run}", hint="`fedaudit run CONFIG --out FOLDER` makes one")
    document = compose(read_result(run), [catalog.load("sections", n) for n in catalog.names("sections")])
    written = []
    for number, page in enumerate(pages(document, DOTS)[:FRONT], 1):
        written.append(prefix.with_name(f"{prefix.name}-{number}.png"))
        with Image.open(io.BytesIO(page)) as image:
            # by the colours that are there, not by how often: a badge keeps its own
            few = image.convert("RGB").quantize(method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
            few.save(written[-1], optimize=True)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run folder with its audit.json")
    parser.add_argument("prefix", type=Path, help="of the files, as docs/decision")
    given = parser.parse_args()
    try:
        for path in decision_pages(given.run, given.prefix):
            print(f"{path}, {path.stat().st_size / 1000:.0f} kB")
    except UserError as error:
        sys.exit(f"error: {error}\n  hint: {error.hint}")


if __name__ == "__main__":
    main()
