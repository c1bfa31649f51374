"""Arrays that compiled code finds by their addresses.

A call from Python unpacks every array that it is given, some 0.15 us each: of a state of a dozen
arrays that is most of a short call. A handle is one array of integers, the address and the shape
of each of them, from which the compiled function makes them again:

    handle = handle_of(state)            once, and again whenever an array is another one
    state = state_at(handle)             in compiled code; nothing is copied

Whoever makes a handle keeps the arrays alive for as long as it is in use.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.experimental.function_type import _get_jit_address
from numba.extending import intrinsic
from numba.np import arrayobj
from numpy.typing import NDArray

Handle = NDArray[np.int64]
HANDLE_TYPE = types.Array(types.int64, 1, "C")


def handle_of(arrays: Iterable[NDArray[Any]]) -> Handle:
    """Address and shape of each, one after the other. They must be contiguous."""
    words: list[int] = []
    for array in arrays:
        assert array.flags.c_contiguous, "a handle is of contiguous arrays"
        words += [array.ctypes.data, *array.shape]
    return np.array(words, dtype=np.int64)


def array_at(array_type: Any) -> Any:
    """A function of (address, shape), for compiled code, that gives the array of that type."""
    ndim = array_type.ndim

    @intrinsic  # type: ignore[untyped-decorator]
    def make(typing_context: Any, address: Any, shape: Any) -> Any:
        signature = array_type(types.int64, types.UniTuple(types.int64, ndim))

        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            made = context.make_array(array_type)(context, builder)
            item = context.get_data_type(array_type.dtype)
            item_bytes = context.get_constant(types.intp, context.get_abi_sizeof(item))
            shape = cgutils.unpack_tuple(builder, arguments[1], ndim)
            strides = [item_bytes]
            for length in reversed(shape[1:]):
                strides.insert(0, builder.mul(strides[0], length))
            arrayobj.populate_array(
                made,
                data=builder.inttoptr(arguments[0], made.data.type),
                shape=shape,
                strides=strides,
                itemsize=item_bytes,
                meminfo=None,
            )
            return made._getvalue()

        return signature, code

    return make


def function_address(dispatcher: Any, signature: Any) -> int:
    """Where the compiled function of that signature lies; whoever uses it keeps ``dispatcher``."""
    return int(_get_jit_address(dispatcher, signature))


def function_at(signature: Any) -> Any:
    """A function of an address, for compiled code, that gives the function of that signature."""
    function_type = types.FunctionType(signature)

    @intrinsic  # type: ignore[untyped-decorator]
    def make(typing_context: Any, address: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            made = cgutils.create_struct_proxy(function_type)(context, builder)
            made.jit_addr = builder.inttoptr(arguments[0], cgutils.voidptr_t)
            return made._getvalue()

        return function_type(types.int64), code

    return make
