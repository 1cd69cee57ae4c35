"""Where the data sets of the MNIST family lie, and how to get them."""

from pathlib import Path

from fedaudit.fl.datasets._arrays import find
from fedaudit.fl.datasets._idx import PARTS
from fedaudit.fl.runtime.errors import UserError

CACHE = Path.home() / ".cache" / "fedaudit"


def locate(
    name: str,
    torchvision_name: str,
    path: str | None,
    download: bool,
    *,
    installed: Path | None = None,
    files: tuple[str, ...] = PARTS,
    hint: str,
    **options: str,
) -> list[Path]:
    """The four files: in `path` or where a system package puts them; downloaded only if told to.

    `path` may be the folder of the files, or the root that torchvision's data set was given.
    """
    roots = [Path(path).expanduser()] if path else [CACHE]
    folders = [f for r in roots for f in (r, r / "raw", r / torchvision_name / "raw")]
    if not path and installed is not None:
        folders.insert(0, installed)
    if not download:
        return find(name, folders, files, hint)
    try:
        return find(name, folders, files, hint)
    except UserError:
        from fedaudit.fl.runtime.vision import torchvision

        try:
            getattr(torchvision.datasets, torchvision_name)(str(roots[0]), download=True, **options)
        except (OSError, RuntimeError) as error:
            raise UserError(f"{name} could not be downloaded: {error}", hint=hint) from error
        return find(name, folders, files, hint)
