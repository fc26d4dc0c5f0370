"""The registry of extractors, including those that other packages register."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from crossbit import DataError, Recipe, features, plugins
from crossbit.features import Extractor
from crossbit.features import extractor as registry

PLUGIN = '''
from dataclasses import dataclass

import numpy as np

from crossbit.features import Extractor


@dataclass(frozen=True, eq=False)
class Loudness(Extractor, kind="test-loudness"):
    """Share of upper-case letters, as an example of another package's extractor."""

    accepts = "speech"

    scale: float = 1.0

    @property
    def width(self):
        return 1

    def extract_one(self, raw):
        return np.array([self.scale * sum(map(str.isupper, raw)) / len(raw)], np.float32)
'''

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package with the given source and entry points; undone afterwards."""
    kinds = dict(registry._KINDS)

    def install(source: str, entries: str) -> None:
        (tmp_path / "loud_plugin.py").write_text(source)
        info = tmp_path / "loud_plugin-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: loud-plugin\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[crossbit.extractors]\n{entries}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        plugins._all_groups.cache_clear()

    yield install
    registry._KINDS.clear()
    registry._KINDS.update(kinds)
    sys.modules.pop("loud_plugin", None)
    plugins._all_groups.cache_clear()


def test_every_built_in_extractor_says_what_it_accepts() -> None:
    accepted = {kind: features.extractor_class(kind).accepts for kind in registry._KINDS}
    expected = {
        "tags": "text",
        "tfidf": "text",
        "sentence-network": "text",
        "sift": "image",
        "colour-gradients": "image",
        "image-network": "image",
        "shape-heat": "mesh",
        "shape-bag": "mesh",
        "shape-spatial-bag": "mesh",
    }
    assert expected.items() <= accepted.items()


def test_only_bounded_extractors_accept_uploads() -> None:
    kinds = {"sift", "colour-gradients", "image-network", "log-mel", "mfcc", "audio-network"}
    kinds |= {"signal-statistics", "signal-convolutions", "vector"}
    built_in = {
        kind: cls for kind, cls in registry._KINDS.items() if cls.__module__.startswith("crossbit.")
    }
    assert {kind for kind, cls in built_in.items() if cls.accepts_uploads} == kinds


def test_only_a_bag_of_tags_has_exact_terms() -> None:
    tags = features.BagOfTags(("dog", "red food"))
    assert tags.exact_terms
    assert tags.terms("Red food + cow") == ["red food"]
    tfidf = features.Tfidf.fit(["a dog"])
    assert not tfidf.exact_terms
    assert tfidf.terms("A dog runs") == ["a", "dog", "runs"]
    assert features.ColorHistogram().terms(b"") == []


def test_a_package_registers_an_extractor(install: Install) -> None:
    assert "test-loudness" not in features.extractor_kinds()
    install(PLUGIN, "test-loudness = loud_plugin:Loudness")
    assert "test-loudness" in features.extractor_kinds()
    assert "loud_plugin" not in sys.modules  # listing does not import it
    extractor = features.load_extractor(Recipe("test-loudness", {"scale": 2.0}))
    assert isinstance(extractor, Extractor)
    np.testing.assert_array_equal(extractor.extract(["Hi", "HI", "hi"]), [[1], [2], [0]])
    assert features.extractor_class("test-loudness").accepts == "speech"


def test_worker_processes_find_registered_extractors(install: Install) -> None:
    install(PLUGIN, "test-loudness = loud_plugin:Loudness")
    extractor = features.load_extractor(Recipe("test-loudness"))
    extraction = features.extract(extractor, ["HI"] * 100, workers=2)
    np.testing.assert_array_equal(extraction.rows, np.ones((100, 1)))


def test_unknown_kinds_list_registered_ones(install: Install) -> None:
    install(PLUGIN, "test-loudness = loud_plugin:Loudness")
    with pytest.raises(
        DataError, match=r"unknown kind of recipe 'smell'; known: .*'test-loudness'"
    ):
        features.load_extractor(Recipe("smell"))


@pytest.mark.parametrize(
    ("source", "entry", "message"),
    [
        ("import no_such_library", "loud_plugin:Loudness", "cannot be imported .ModuleNotFound"),
        (PLUGIN, "loud_plugin:Volume", "cannot be imported .AttributeError"),
        (PLUGIN, "loud_plugin:np", "expected a subclass of Extractor with kind='broken', got"),
        (PLUGIN, "loud_plugin:Loudness", "expected a subclass of Extractor with kind='broken'"),
    ],
)
def test_an_entry_that_fails_to_load_is_reported(
    source: str, entry: str, message: str, install: Install
) -> None:
    install(source, f"broken = {entry}")
    with pytest.raises(DataError, match=message) as raised:
        features.load_extractor(Recipe("broken"))
    assert str(raised.value).startswith(f"extractor 'broken' of loud-plugin ({entry})")
