"""Tables of numbers in Markdown."""

from collections.abc import Sequence


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table, the first column to the left and numbers to the right.

    Example:
        >>> print(table(["method", "mAP"], [["MMNN", "28.0"]]), end="")
        | method | mAP |
        | --- | ---: |
        | MMNN | 28.0 |
    """
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (header, rule, *lines))
