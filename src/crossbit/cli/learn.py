"""``crossbit learn``: from a folder of pictures and a file of captions to a collection."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from crossbit.cli import intake, show
from crossbit.cli.measure import print_reports
from crossbit.cli.models import hasher_of
from crossbit.pipeline import IMAGE, TEXT, Learned
from crossbit.pipeline import learn as learn_all

_SHOWN = 10  # lines about what was skipped


def _options(names: dict[str, str]) -> str:
    return "; ".join(f"{name}: {what}" for name, what in names.items()) + "."


def learn(
    images: Annotated[
        Path, typer.Option("--images", "-i", help="Folder of pictures, and folders below it.")
    ],
    captions: Annotated[
        Path, typer.Option("--captions", "-c", help="CSV, JSON lines or Flickr8k tokens.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the collection; it must not exist yet.")
    ],
    image_features: Annotated[str, typer.Option(help=_options(IMAGE))] = "efficientnet",
    text_features: Annotated[str, typer.Option(help=_options(TEXT))] = "minilm",
    method: Annotated[
        str, typer.Option("--method", "-m", help="One of 'crossbit methods'.")
    ] = "rankedcca",
    bits: Annotated[int, typer.Option("--bits", "-b", help="Length of a code, 1 to 1024.")] = 128,
    held_out: Annotated[
        float,
        typer.Option(
            min=0.0, max=1.0, help="Share of the pictures that is not learned from but tried on."
        ),
    ] = 0.1,
    hold_out_names: Annotated[
        Path | None,
        typer.Option("--hold-out", help="File with the names of the pictures to hold out instead."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same collection.")] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="One field of the method; may be repeated."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that describe pictures.", show_default="cores"),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Folder for features and converted networks.", show_default="~/.cache/crossbit"
        ),
    ] = None,
) -> None:
    """Learn from pictures and captions, and put them into a collection: words find pictures, pictures find words.

    Features are made and remembered, some pictures are held out, a model is learned and tried on them, and everything
    is encoded. An interrupted run goes on where it was when the same command is given again.

    Captions are lines such as 'dog.jpg#0<TAB>A dog runs' (Flickr8k), a CSV file with columns such as image and
    caption, or JSON lines with such keys; several lines about one picture are several captions.

    For example:

      crossbit learn --images photos --captions captions.csv --out gallery
      crossbit learn -i photos -c captions.jsonl -o gallery -b 64 --image-features sift:500 --text-features tags
    """
    learned = learn_all(
        images,
        captions,
        out,
        image=image_features,
        text=text_features,
        hasher=hasher_of(method, {"n_bits": bits, "seed": seed}, None, set_ or []),
        held_out=held_out if hold_out_names is None else intake.names(hold_out_names),
        seed=seed,
        workers=workers or os.cpu_count() or 1,
        cache=cache,
        progress=show.steps,
    )
    _tell(learned, out)


def _tell(learned: Learned, out: Path) -> None:
    """What was skipped, how good it is, where things are, what to try next."""
    for line in learned.skipped[:_SHOWN]:
        show.say(f"skipped {line}")
    if (more := len(learned.skipped) - _SHOWN) > 0:
        show.say(f"... and {more:,} more")
    show.out.print(
        f"{learned.model} from {learned.pictures:,} pictures and {learned.captions:,} captions;"
        f" on {learned.held_out:,} held-out pictures, which it has not seen:\n",
    )
    print_reports(learned.reports)
    took = ", ".join(f"{title} {seconds:.0f} s" for title, seconds in learned.seconds.items())
    where = shlex.quote(str(out))
    show.say(f"\n{took}")
    show.say(
        f"collection  {out}\nmodel       {out / 'model' / '1'}\nquality     {out / 'report.json'}"
    )
    show.say("try next:")
    for command in (
        f"crossbit search {where} 'a dog on the beach' -m text --among image",
        f"crossbit serve {where}",
        f"crossbit stats {where}",
    ):
        show.say(f"  {command}")
