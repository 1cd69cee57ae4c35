"""torchvision: the one place that imports it, because the CPU build of torch needs a word first.

PyPI's torchvision is compiled against PyPI's CUDA build of torch. Beside torch's CPU build its
compiled library does not load, and the import stops at "operator torchvision::nms does not exist":
two box operators (nms and qnms, non-maximum suppression) get a shape rule before anybody has
declared them. Declared here, they stay without a kernel, and calling one is an error; data sets,
transforms and classifiers need neither. Where torchvision is whole nothing is declared.

Import it in the function that needs it, since torch's compiler comes with it and takes seconds:

    from fedaudit.fl.runtime.vision import torchvision
"""

import torch

_declared: list[torch.library.Library] = []  # the operators live as long as this does

try:
    import torchvision
except RuntimeError as error:
    if "torchvision::" not in str(error):
        raise
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        schema = f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        library.define(schema)  # type: ignore[no-untyped-call]
    _declared.append(library)
    import torchvision

__all__ = ["torchvision"]
