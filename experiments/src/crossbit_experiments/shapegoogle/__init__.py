"""The paper's first experiment, *reconstructed*: shapes, transformed, among others that are none of them.

The descriptors that the paper used are not public. Here the data set is built anew from meshes of TOSCA and of Sumner
and Popović: the same number of classes, shapes and distractors, transformations of the same names, descriptors of
the same kind. What the numbers share with the paper's is therefore the shape of the task, not its data.
"""
