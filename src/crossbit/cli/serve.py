"""``crossbit serve``: a collection over HTTP, with a page to search it."""

import os
from pathlib import Path
from typing import Annotated

import typer

from crossbit.cli import show
from crossbit.cli.places import OwnModel, Place, opened
from crossbit.collection import Collection
from crossbit.errors import DataError, MissingExtraError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve(
    collection: Place,
    host: Annotated[
        str, typer.Option(help="Address to listen on; by default only this machine.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    media: Annotated[
        Path | None,
        typer.Option(help="Folder of the pictures; by default the one that learning noted down."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with a token that clients must send; or set CROSSBIT_TOKEN."),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(help="A further host name to answer under; may be repeated, '*' for any."),
    ] = None,
    writable: Annotated[
        bool, typer.Option("--writable", help="Let clients add and delete items.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Answers worked on at once.", show_default="cores")
    ] = None,
    model: OwnModel = None,
) -> None:
    """Serve COLLECTION over HTTP: a page to search it with words and pictures, and an API.

    Ctrl-C ends it in good order. GET /openapi.json describes the API, /healthz and /metrics are for those who watch.

    For example:

      crossbit serve photos
      crossbit serve photos --port 0 --media ~/Pictures
      crossbit serve milvus://localhost:19530/photos --model photos-model
      CROSSBIT_TOKEN=secret crossbit serve photos --host 0.0.0.0 --name search.example.org
      curl -H 'Content-Type: application/json' -d '{"text": "dog + beach", "k": 3}' localhost:8000/api/search
    """
    run(
        collection,
        host=host,
        port=port,
        media=media,
        token=_token(token_file),
        names=name,
        writable=writable,
        threads=threads,
        model=model,
    )


def run(
    collection: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    media: Path | None = None,
    token: str | None = None,
    names: list[str] | None = None,
    writable: bool = False,
    threads: int | None = None,
    model: Path | None = None,
) -> None:
    """Serve a collection until the process is told to end, and say where."""
    try:
        from crossbit import server
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "pydantic", "starlette"):
            raise
        raise MissingExtraError(error.name, "web") from error
    if host not in LOOPBACK and token is None:
        raise DataError(
            f"listening on {host} would let anybody in; set CROSSBIT_TOKEN, or stay on this machine with --host"
            " 127.0.0.1"
        )
    with opened(collection, model) as found:
        settings = server.Settings(
            token=token,
            writable=writable,
            media=media or _noted(found),
            hosts=(*LOOPBACK, host, *(names or [])),
            **({} if threads is None else {"threads": threads}),
        )
        try:
            server.serve(
                server.create_app(found, settings),
                host=host,
                port=port,
                ready=lambda at: _say(found, at),
            )
        except KeyboardInterrupt:  # uvicorn passes on the signal that ended it, when all is done
            show.say("stopped")


def _say(collection: Collection, address: str) -> None:
    show.say(f"{collection} with {len(collection):,} items")
    show.say(f"serving at {address} - Ctrl-C ends it")


def _noted(collection: Collection) -> Path | None:
    """The folder of pictures that learning noted on the model's card, if it is still there."""
    noted = collection.model.card.get("media")
    if not isinstance(noted, str):
        return None
    if not Path(noted).is_dir():
        show.say(f"the pictures are no longer in {noted}; --media FOLDER says where they are")
        return None
    return Path(noted)


def _token(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get("CROSSBIT_TOKEN") or None
    return path.read_text().strip()
