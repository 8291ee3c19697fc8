"""Array types of the package."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Int8s = NDArray[np.int8]
Int32s = NDArray[np.int32]
Indices = NDArray[np.intp]
