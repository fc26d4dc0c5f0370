"""Commands from plain functions: options from the signature, their help from the docstring.

A parameter before ``*`` is an argument, one after it an option, and ``Args:`` explains both. An
explanation may begin with the placeholder of the value in double backquotes, and end with a
``Default: …`` in words.
"""

import re
from collections.abc import Callable
from copy import copy
from inspect import Parameter, getdoc, signature
from typing import Annotated, Any, get_args, get_origin

import typer

_SHORT = {"out": "-o", "bits": "-b", "modality": "-m", "model": "-M"}
_SHARED = {
    "collection": "``COLLECTION``: Folder of a collection, or its address and model:"
    " milvus://host/name#MODEL or postgresql://host/database/name#MODEL.",
    "dataset": "``DATASET``: Data set folder; see 'crossbit data --help'.",
    "model": "``MODEL``: Model folder, as written by 'crossbit fit'.",
    "bits": "Code length, 1 to 1024.",
    "set_": "``FIELD=VALUE``: Field of the method; repeatable.",
    "replace": "Replace the output if it exists.",
    "workers": "Number of processes that work at once.",
    "ray": "``ADDRESS|local``: Ray cluster on which the processes (2) run.",
}
"""Parameters of several commands and their explanation, unless a command has another."""
_EXPLANATION = re.compile(r"(?:``([^`]+)``: )?(.+?)(?: Default: (.+)\.)?", re.DOTALL)


def describe(function: Callable[..., Any]) -> str:
    """Write the options of a command into its signature, where typer finds them; return its help.

    Args:
        function: The command.
    """
    text, _, listed = (getdoc(function) or "").partition("\n\nArgs:\n")
    parts = re.split(r"^    (\w+): ", listed, flags=re.MULTILINE)
    docs = {name: " ".join(doc.split()) for name, doc in zip(parts[1::2], parts[2::2], strict=True)}
    given = signature(function, eval_str=True)
    parameters = dict(given.parameters)
    docs = {name: doc for name, doc in _SHARED.items() if name in parameters} | docs
    for name, doc in docs.items():
        parameters[name] = explained(parameters[name], doc)
    function.__signature__ = given.replace(  # type: ignore[attr-defined]
        parameters=list(parameters.values())
    )
    return reflow(text)


def explained(parameter: Parameter, doc: str) -> Parameter:
    """Return a parameter with its explanation, and its names on the command line."""
    match = _EXPLANATION.fullmatch(doc)
    metavar, text, default = match.groups() if match else (None, doc, None)
    annotation = parameter.annotation
    given: list[Any] = []
    if get_origin(annotation) is Annotated:
        annotation, *given = get_args(annotation)
    is_option = parameter.kind is Parameter.KEYWORD_ONLY
    info = copy(given[0]) if given else typer.Option(*_names(parameter.name))
    if not is_option and not given:
        info = typer.Argument()
    info.help, info.metavar = text, metavar or _placeholder(annotation)
    info.show_default = default or info.show_default
    return parameter.replace(annotation=Annotated[annotation, info])


def _placeholder(annotation: object) -> str | None:
    """Return what stands for the value of a flag or of a repeatable option."""
    kinds = [annotation, *get_args(annotation)]
    lists = [kind for kind in kinds if get_origin(kind) is list]
    if lists:
        return f"<{get_args(lists[0])[0].__name__}>"
    return " " if annotation is bool else None


def _names(name: str) -> list[str]:
    """Return the names of an option, such as ``--out`` and ``-o``."""
    word = name.strip("_").replace("_", "-")
    long = f"--{word}" if len(word) > 1 else f"-{word}"
    return [long, _SHORT[word]] if word in _SHORT else [long]


def reflow(text: str) -> str:
    """Join the lines of each paragraph, so that help fits any width; examples are indented."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(p if p.startswith(" ") else p.replace("\n", " ") for p in paragraphs)
