"""``crossbit serve``: a collection over HTTP, with a page to search it."""

import os
from pathlib import Path
from typing import Annotated

import typer

from crossbit.cli import console
from crossbit.cli._options import CollectionModel, CollectionPath, open_collection
from crossbit.collection.collection import Collection
from crossbit.errors import DataError, MissingExtraError

commands = typer.Typer()


@commands.command("serve")
def _serve(
    collection: CollectionPath,
    host: Annotated[
        str, typer.Option(help="Address to listen on; the default is this machine only.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    images: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the images.", show_default="the folder they were learned from"
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with a token that clients must send; or set CROSSBIT_TOKEN."),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="Another host name to answer to; repeatable, '*' for any."),
    ] = None,
    writable: Annotated[
        bool, typer.Option("--writable", help="Let clients add and delete items.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Requests handled at once.", show_default="cores")
    ] = None,
    model: CollectionModel = None,
) -> None:
    """Serve a collection over HTTP: a page to search it with text and images, and an API.

    Ctrl-C shuts it down gracefully. GET /openapi.json describes the API; /healthz and /metrics
    are for monitoring.

    For example:

      crossbit serve photos
      crossbit serve photos --port 0 --images ~/Pictures
      crossbit serve milvus://localhost:19530/photos --model photos-model
      CROSSBIT_TOKEN=secret crossbit serve photos --host 0.0.0.0
      curl --json '{"text": "dog + beach", "k": 3}' localhost:8000/api/search
    """
    run_server(
        collection,
        host=host,
        port=port,
        images=images,
        token=_token(token_file),
        allowed_hosts=allowed_host,
        writable=writable,
        threads=threads,
        model=model,
    )


def run_server(
    collection: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    images: Path | None = None,
    token: str | None = None,
    allowed_hosts: list[str] | None = None,
    writable: bool = False,
    threads: int | None = None,
    model: Path | None = None,
) -> None:
    """Serve a collection until the process is stopped, and print the address."""
    try:
        from crossbit import server
        from crossbit.server.run import LOOPBACK
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "pydantic", "starlette"):
            raise
        raise MissingExtraError(error.name, "web") from error
    if host not in LOOPBACK and token is None:
        raise DataError(
            f"listening on {host} without a token would admit anybody; set CROSSBIT_TOKEN, or stay"
            " on this machine with --host 127.0.0.1"
        )
    with open_collection(collection, model) as source:
        config = server.ServerConfig(
            token=token,
            writable=writable,
            images=images or _learned_images(source),
            allowed_hosts=(*LOOPBACK, host, *(allowed_hosts or [])),
            **({} if threads is None else {"threads": threads}),
        )

        def ready(address: str) -> None:
            console.say(f"{source} with {len(source):,} items")
            console.say(f"serving at {address} - Ctrl-C stops it")

        try:
            server.serve(server.create_app(source, config), host=host, port=port, ready=ready)
        except KeyboardInterrupt:  # uvicorn raises the signal again after its shutdown
            console.say("stopped")


def _learned_images(collection: Collection) -> Path | None:
    """Return the folder of images that `learn` stored in the model card, if it exists."""
    folder = collection.model.card.get("media")
    if not isinstance(folder, str):
        return None
    if not Path(folder).is_dir():
        console.say(f"the images are no longer in {folder}; name their folder with --images")
        return None
    return Path(folder)


def _token(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get("CROSSBIT_TOKEN") or None
    return path.read_text().strip()
