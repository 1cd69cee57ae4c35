"""Features of many small sets of images, each of which an attack asks the same model about."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Extractor, Floats

MOST = 4096  # different images at a time, but for a set that holds more


def extract_each(extractor: Extractor, sets: Sequence[Floats]) -> Iterator[Floats]:
    """Features [n, D] of every set of images [n, ...], in order; the model sees images of several sets once."""
    begin = 0
    while begin < len(sets):
        places, images = _number_images(sets[begin:])
        features = extractor.features(np.stack(images)) if images else np.zeros((0, 0))
        yield from (features[own] for own in places)
        begin += len(places)


def _number_images(sets: Sequence[Floats]) -> tuple[list[NDArray[np.int64]], list[Floats]]:
    """Which of the different images the first sets hold, of as many sets as fit, and these images."""
    number, images = dict[bytes, int](), list[Floats]()
    known, places = dict[int, NDArray[np.int64]](), list[NDArray[np.int64]]()
    for some in sets:
        if id(some) not in known:
            if images and len(images) + len(some) > MOST:
                break
            own = []
            for x in some:
                key = np.ascontiguousarray(x).tobytes()
                if key not in number:
                    number[key] = len(images)
                    images.append(x)
                own.append(number[key])
            known[id(some)] = np.array(own, np.int64)
        places.append(known[id(some)])
    return places, images
