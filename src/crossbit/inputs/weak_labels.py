"""TEMPORARY."""


def too_few_labels(data):
    from crossbit.neural.weak_labels import without_few_labels

    return without_few_labels(data) is not data


def repair_labels(data, fit, seed):
    return data, fit(data), None
