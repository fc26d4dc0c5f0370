"""An accelerometer finds a gyroscope: four activities, of the data set BasicMotions.

pip download --no-deps aeon && python examples/sensors.py aeon-*.whl
"""

import io
import sys
import zipfile

import numpy as np

from crossbit import CCAITQ, ClassRidge
from crossbit.features import RandomConvolutions
from crossbit.metrics import evaluate, from_labels, same_class, standard_measures

if len(sys.argv) < 2:
    print("name the wheel that contains BasicMotions: pip download --no-deps aeon")
    sys.exit()

CHANNELS = {"accelerometer": slice(0, 3), "gyroscope": slice(3, 6)}
AT = standard_measures(at=(1, 10))


def read(part: str) -> tuple[dict[str, list[bytes]], np.ndarray]:
    """Return the series of each sensor as contents of .npy files, and the activities."""
    name = f"aeon/datasets/data/BasicMotions/BasicMotions_{part}.ts"
    lines = zipfile.ZipFile(sys.argv[1]).read(name).decode().partition("@data\n")[2].split()
    cells = [line.split(":") for line in lines]
    numbers = [[list(map(float, series.split(","))) for series in row[:-1]] for row in cells]
    series = np.array(numbers).transpose(0, 2, 1)  # (recordings, 100 points in time, 6 channels)
    parts = {sensor: series[:, :, channels] for sensor, channels in CHANNELS.items()}
    files = {sensor: [to_file(values) for values in array] for sensor, array in parts.items()}
    return files, np.array([row[-1] for row in cells])


def to_file(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


train, activities = read("TRAIN")
test, test_activities = read("TEST")
extractors = {sensor: RandomConvolutions.fit(files) for sensor, files in train.items()}
X = {sensor: extractors[sensor].extract(files) for sensor, files in train.items()}
Y = {sensor: extractors[sensor].extract(files) for sensor, files in test.items()}
by_class = ClassRidge(n_bits=32).fit(X, labels=activities)
by_row = CCAITQ(n_bits=32, regularization=1.0).fit(X)
same = from_labels(test_activities, test_activities)
own = same_class(np.arange(len(test_activities)), np.arange(len(test_activities)))
for query, base in (("accelerometer", "gyroscope"), ("gyroscope", "accelerometer")):
    title = f"{query:>13} → {base:<13}"
    activity = evaluate(by_class.encode(query, Y[query]), by_class.encode(base, Y[base]), same)
    mean = activity["mAP"]
    print(f"{title} same activity: mAP {mean.value:.1%}, chance {mean.chance:.1%}")
    rows = evaluate(by_row.encode(query, Y[query]), by_row.encode(base, Y[base]), own, measures=AT)
    for k in (1, 10):
        value = rows[f"recall@{k}"].value
        print(f"{title} own row: recall@{k} {value:.1%}, chance {k / len(test_activities):.1%}")
