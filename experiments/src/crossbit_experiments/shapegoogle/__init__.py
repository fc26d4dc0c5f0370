"""The paper's first experiment, *reconstructed*: transformed shapes among distractors.

The paper's descriptors are not public. This package builds the data set from meshes of TOSCA and of
Sumner and Popović: the same numbers of classes, shapes and distractors, transformations of the same
names, descriptors of the same kind. Its numbers share the form of the task with the paper's, not
the data.
"""
