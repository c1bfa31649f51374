"""``pointsman init``: commented files to start from."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from pointsman.cli import options

NAME = "init"
HELP = "write commented starter files: costs, a model, a device, what to ask of them"

FILES = ("costs.toml", "model.toml", "device.toml", "questions.toml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        default=Path(),
        metavar="FOLDER",
        help="where to; made if it is not there (default: here)",
    )
    parser.add_argument(
        "--force", action="store_true", help="write over files of these names that are there"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write all of them or none; 0."""
    from importlib.resources import files

    from pointsman.core.errors import MachineError
    from pointsman.core.files import whole_file

    folder: Path = arguments.folder
    _check_folder(folder, arguments.force)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(f"cannot make {folder}: {error.strerror}") from None
    for name in FILES:
        content = files("pointsman.cli").joinpath("starter", name).read_bytes()
        with whole_file(folder / name) as file:
            file.write(content)
        options.say(f"wrote {folder / name}")
    print(_next_steps(folder))
    return 0


def _check_folder(folder: Path, force: bool) -> None:
    from pointsman.core.errors import InputError

    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; expected a folder, or a name for a new one")
    there = [name for name in FILES if (folder / name).exists() or (folder / name).is_symlink()]
    if there and not force:
        raise InputError(
            f"{folder}: already there: {', '.join(there)}; expected a folder without these names;"
            " name another one, or write over them with --force"
        )


def _next_steps(folder: Path) -> str:
    names = ("costs.toml", "trace.jsonl", "model.toml", "device.toml")
    costs, trace, models, devices = (shlex.quote(str(folder / name)) for name in names)
    return (
        "Next: set your figures in costs.toml, then\n"
        "  pointsman trace generate --requests 1000 --rate-rps 60"
        " --prompt-tokens lognormal:mean=800,sigma=1 --output-tokens geometric:mean=200"
        f" --output {trace}\n"
        f"  pointsman compare {trace} --replicas 4 --costs {costs}\n"
        "On replicas that batch, with your figures in model.toml and device.toml:\n"
        f"  pointsman compare {trace} --fleet 8xmy-gpu --model my-model"
        f" --models {models} --devices {devices}"
    )
