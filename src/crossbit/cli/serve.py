"""``crossbit serve``: collections over HTTP, with a page to search them."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crossbit._validation import check_installed
from crossbit.cli import console
from crossbit.cli._options import Workers, open_collection, split_address
from crossbit.collection.collection import Collection
from crossbit.collection.stores import display_path, is_folder
from crossbit.errors import DataError
from crossbit.kernels.dispatch import available_cores

if TYPE_CHECKING:
    from fastapi import FastAPI

    from crossbit.server import ServerConfig

commands = typer.Typer()
LIBRARIES = ("fastapi", "uvicorn", "prometheus_client")
_EXIT_SECONDS = 4.0  # after a signal, whatever clients do


@commands.command("serve")
def _serve(
    collections: list[str],
    *,
    default: str | None = None,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    images: Path | None = None,
    token_file: Path | None = None,
    access_log: str | None = None,
    allowed_host: list[str] | None = None,
    writable: bool = False,
    workers: Workers = 1,
    threads: Annotated[int | None, typer.Option(min=1)] = None,
) -> None:
    """Serve collections over HTTP: a page to search them with text and images, and an API.

    The default collection is at /api/…; all of them are at /api/collections/NAME/…, under the last
    part of their path or the NAME before it.

    Ctrl-C and SIGTERM let running requests finish, for at most five seconds. With several workers,
    one that dies is restarted. GET /openapi.json describes the API; /healthz and /metrics are for
    monitoring. Rate limits and TLS are the work of a proxy.

    For example:

      crossbit serve photos
      crossbit serve photos --port 0 --images ~/Pictures
      crossbit serve photos --workers 4
      crossbit serve photos sounds=archive/2024/collection
      crossbit serve /var/lib/crossbit --default photos
      crossbit serve milvus://localhost:19530/photos#photos-model
      CROSSBIT_TOKEN=secret crossbit serve photos --host 0.0.0.0
      curl --json '{"text": "dog + beach", "k": 3}' localhost:8000/api/search

    Args:
        collections: ``[NAME=]COLLECTION``: Folders of collections, or their addresses (milvus://
            or postgresql://…/name#MODEL); or one folder that contains them, which can be empty with
            --writable.
        default: ``NAME``: Collection at /api/…. Default: the first one at the start.
        host: Address to listen on; the default is this machine only.
        port: Port to listen on; 0 takes a free one.
        images: Folder of the images. Default: the folder they were learned from.
        token_file: File of the tokens that clients must send, which 'crossbit token' writes; read
            again when it changes. Or set CROSSBIT_TOKEN.
        access_log: ``FILE|-``: Add a line of JSON per request to this file.
        allowed_host: Another host name to answer to; repeatable, '*' for any.
        writable: Let clients add and delete items.
        threads: Requests that a worker handles at once. Default: cores.
    """
    run_server(
        collections,
        default=default,
        host=host,
        port=port,
        images=images,
        allowed_hosts=allowed_host,
        token=None if token_file else os.environ.get("CROSSBIT_TOKEN") or None,
        token_file=token_file,
        access_log=access_log,
        writable=writable,
        workers=workers or 1,
        threads=threads or max(1, available_cores() // (workers or 1)),
    )


def run_server(
    collections: list[str],
    *,
    default: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    images: Path | None = None,
    allowed_hosts: list[str] | None = None,
    workers: int = 1,
    **settings: Any,  # noqa: ANN401 - fields of ServerConfig
) -> None:
    """Serve collections until the process is stopped, and print the address."""
    check_installed(*LIBRARIES)
    from crossbit import server

    if host not in server.LOOPBACK and not (settings.get("token") or settings.get("token_file")):
        raise DataError(
            f"listening on {host} without a token would admit anybody; set CROSSBIT_TOKEN, or stay"
            " on this machine with --host 127.0.0.1"
        )
    with _open(collections, writable=settings.get("writable", False)) as sources:
        title = _describe(sources, images)
        default = default or _first(sources)  # all workers have the same
    config = server.ServerConfig(
        default=default,
        images=images or _learned_images,
        allowed_hosts=(*server.LOOPBACK, host, *(allowed_hosts or [])),
        **settings,
    )

    def ready(address: str) -> None:
        console.say(title)
        console.say(f"serving at {address} - Ctrl-C stops it")

    application = partial(_application, collections, config)
    place: dict[str, Any] = {"host": host, "port": port, "ready": ready}
    with suppress(KeyboardInterrupt):  # uvicorn raises the signal again after its shutdown
        server.serve(application, workers=workers, exit_within=_EXIT_SECONDS, **place)
    console.say("stopped")


@contextmanager
def _application(collections: list[str], config: "ServerConfig") -> "Iterator[FastAPI]":
    """Open collections and serve them; each worker does."""
    from crossbit import server

    with _open(collections, writable=config.writable) as sources:
        yield server.create_app(sources, config)


def _first(sources: Mapping[str, Collection] | Path) -> str | None:
    """Name of the first collection; None in a folder without any."""
    if isinstance(sources, Path):
        names = sorted(each.name for each in _subfolders(sources) if Collection.exists(each))
        return next(iter(names), None)
    return next(iter(sources))


def _describe(sources: Mapping[str, Collection] | Path, images: Path | None) -> str:
    """What is served; warn about images that are gone."""
    if isinstance(sources, Path):
        return f"the collections in {sources}"
    for source in sources.values():
        folder = source.model.card.get("media")
        if images is None and isinstance(folder, str) and not Path(folder).is_dir():
            console.say(f"the images are no longer in {folder}; name their folder with --images")
    return "\n".join(f"{source} with {len(source):,} items" for source in sources.values())


@contextmanager
def _open(words: list[str], *, writable: bool) -> Iterator[Mapping[str, Collection] | Path]:
    """Open the collections that words name; yield a folder that contains collections as it is."""
    folder = Path(words[0])
    if len(words) == 1 and folder.is_dir() and not Collection.exists(folder):
        inside = _subfolders(folder)
        has_collections = any(map(Collection.exists, inside))
        # In a folder of models, or an empty one, clients can create collections.
        has_only_models = all((each / "config.json").is_file() for each in inside)
        if has_only_models and not has_collections and not writable:
            raise DataError(
                f"{folder}: not a collection, and it contains none; create one with 'crossbit"
                " collection create', or let clients create them in this folder with --writable"
            )
        if has_collections or has_only_models:
            yield folder
            return
    with ExitStack() as stack:
        opened: dict[str, Collection] = {}
        for word in words:
            name, path = _name_and_path(word)
            if name in opened:
                raise DataError(
                    f"two collections have the name {name!r}; choose another one for"
                    f" {display_path(path)}: NAME={display_path(path)}"
                )
            opened[name] = stack.enter_context(open_collection(path))
        yield opened


def _subfolders(folder: Path) -> list[Path]:
    """What a folder contains, without names that no collection can have, such as lost+found."""
    from crossbit.server.registry import COLLECTION_NAME

    return [each for each in folder.iterdir() if re.fullmatch(COLLECTION_NAME, each.name)]


def _name_and_path(word: str) -> tuple[str, str]:
    """Split ``NAME=PATH``; without a name, it is the last part of the path."""
    from crossbit.server.registry import COLLECTION_NAME

    match = re.fullmatch(f"({COLLECTION_NAME})=(.+)", word)
    if match is not None and not Path(word).exists():
        return match[1], match[2]
    address, _ = split_address(word)
    last = Path(word).resolve().name if is_folder(word) else address.partition("?")[0]
    last = last.rpartition("/")[2]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", last)[:100].lstrip("._-")
    return name or "collection", word


def _learned_images(collection: Collection) -> Path | None:
    """Return the folder of images that `learn` stored in the model card, if it exists."""
    folder = collection.model.card.get("media")
    return Path(folder) if isinstance(folder, str) and Path(folder).is_dir() else None
