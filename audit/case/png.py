"""Images as PNG, for evidence and reports."""

import base64
import io
from typing import Any

import numpy as np
from PIL import Image


def png(pixels: np.ndarray[Any, Any]) -> str:
    """An image [C, H, W] in [0, 1] as base64 PNG."""
    values = (np.clip(pixels, 0, 1) * 255).round().astype(np.uint8)
    image = Image.fromarray(values[0] if len(values) == 1 else values.transpose(1, 2, 0))
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode()
