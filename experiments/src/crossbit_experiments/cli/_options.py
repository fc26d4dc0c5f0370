"""Options that the experiments share."""

from pathlib import Path
from typing import Annotated

import typer

Bits = Annotated[int, typer.Option("--bits", "-b", help="Length of a code.")]
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the result files.")]
WikiFolder = Annotated[
    Path | None, typer.Option(help="The Wiki distribution.", show_default="$CROSSBIT_DATA/wiki")
]
FlickrFolder = Annotated[
    Path | None,
    typer.Option(help="The Flickr8k distribution.", show_default="$CROSSBIT_DATA/flickr8k"),
]
PicturesCache = Annotated[
    Path | None,
    typer.Option(help="Where described pictures are kept.", show_default="that of crossbit learn"),
]
