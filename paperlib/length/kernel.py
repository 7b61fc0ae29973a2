"""The algorithm of `exact`, compiled for a CPU: one network after the other, inside its cache.

Same steps and same results as `exact.rectify`, which is the version to read. Here the rows of a
network's points stay in the processor's cache between layers, and each layer is one matrix product
of the size that the network needs, without padding.
"""

import numba
import numpy as np
import scipy.linalg  # noqa: F401  np.dot in compiled code is its BLAS

COLUMNS = ("length", "energy", "pieces", "span")

# Sums may be reordered; comparisons with infinities stay as they are.
_FAST = {"nsz", "arcp", "contract", "reassoc"}


def _can_cache() -> bool:
    """Whether there is a folder, beside this file or in the user's home, to keep compiled code."""
    try:
        numba.njit(cache=True)(_can_cache)
    except RuntimeError:
        return False
    return True


_CACHE = _can_cache()


@numba.njit(nogil=True, fastmath=_FAST, cache=_CACHE)
def trace_block(weights, biases, widths, points, positions, slope, rectify_output):
    """Trace one curve through each of a block of networks.

    weights: (nets, Σ n_{ℓ-1} n_ℓ), layer after layer, each as (n_ℓ, n_{ℓ-1});
    biases: (nets, Σ n_ℓ); points: (nets, K, n_0), or (1, K, n_0) for one curve for all; all three
    float32 or all three float64; widths: (L+1,) int64; positions: (nets, K) or (1, K) float64, arc
    length along the curve; slope: of the leaky ReLU; rectify_output: whether an activation follows
    the last layer.

    A bias of the last layer is left out where no activation follows: it moves the image as a
    whole, and would cost the digits of an image much shorter than its distance from the origin.
    Returns float64 (nets, 4), by `COLUMNS`: length of the image; ∫‖J_x u‖² dx along the curve;
    number of pieces; max - min of the first output coordinate.
    """
    nets = weights.shape[0]
    curves = points.shape[0]
    vertices = points.shape[1]
    layers = widths.size - 1
    widest = widths.max()
    dtype = weights.dtype
    out = np.zeros((nets, 4))
    # Points that fit into the buffers. Mostly enough, so that each block asks for the same memory,
    # which keeps the peak low; else they grow.
    room = 4 * vertices + widths.sum()
    acts = np.empty(room * widest, dtype)
    pres = np.empty(room * widest, dtype)
    t = np.empty(room)
    t_next = np.empty(room)
    zeros = np.empty(room, np.int64)
    fractions = np.empty(widest, dtype)
    neurons = np.empty(widest, np.int64)

    for k in range(nets):
        count = vertices
        t[:count] = positions[k % curves]
        acts[: count * widths[0]] = points[k % curves].ravel()
        w_start = 0
        b_start = 0
        for layer in range(layers):
            fan_in = widths[layer]
            fan_out = widths[layer + 1]
            weight = weights[k, w_start : w_start + fan_in * fan_out].reshape(fan_out, fan_in)
            bias = biases[k, b_start : b_start + fan_out]
            w_start += fan_in * fan_out
            b_start += fan_out
            z = pres[: count * fan_out].reshape(count, fan_out)
            np.dot(acts[: count * fan_in].reshape(count, fan_in), weight.T, z)
            if layer == layers - 1 and not rectify_output:
                break
            _add(z[0], bias)
            total = count
            for i in range(1, count):
                _add(z[i], bias)
                zeros[i - 1] = _count_zeros(z[i - 1], z[i])
                total += zeros[i - 1]
            if total > room:
                room = max(total, 2 * room)
                pres = _grown(pres, room * widest)
                acts = np.empty(room * widest, dtype)
                t = _grown(t, room)
                t_next = np.empty(room)
                zeros = _grown(zeros, room)
                z = pres[: count * fan_out].reshape(count, fan_out)

            h = acts[: total * fan_out].reshape(total, fan_out)
            row = 0
            for i in range(count):
                _rectify(z[i], slope, h[row])
                t_next[row] = t[i]
                row += 1
                if i == count - 1 or zeros[i] == 0:
                    continue
                found = _find_zeros(z[i], z[i + 1], fractions, neurons)
                for m in range(found):
                    _rectify_between(z[i], z[i + 1], fractions[m], slope, h[row])
                    h[row, neurons[m]] = 0
                    t_next[row] = t[i] + fractions[m] * (t[i + 1] - t[i])
                    row += 1
            count = total
            t, t_next = t_next, t
            if not h.any():
                # from here on only rounding would tell one output from another
                pres[: count * widths[layers]] = 0
                break
            if layer == layers - 1:
                pres[: count * fan_out] = acts[: count * fan_out]
        _measure(pres, t, count, widths[layers], out[k])
    return out


@numba.njit(nogil=True, fastmath=_FAST, cache=_CACHE)
def _add(z, bias):
    for j in range(z.size):
        z[j] += bias[j]


@numba.njit(nogil=True, fastmath=_FAST, cache=_CACHE)
def _count_zeros(left, right):
    # counted in the array's own type, which lets the compiler use whole vectors
    zero, one = left.dtype.type(0), left.dtype.type(1)
    count = zero
    for j in range(left.size):
        a, b = left[j], right[j]
        count += one if ((a < zero) & (b > zero)) | ((a > zero) & (b < zero)) else zero
    return np.int64(count)


@numba.njit(nogil=True, fastmath=_FAST, cache=_CACHE)
def _find_zeros(left, right, fractions, neurons):
    """Zeros between two neighbouring points, in order, by insertion (mostly one or two)."""
    found = 0
    for j in range(left.size):
        a, b = left[j], right[j]
        if (a < 0 and b > 0) or (a > 0 and b < 0):
            fraction = a / (a - b)
            m = found
            while m > 0 and fractions[m - 1] > fraction:
                fractions[m] = fractions[m - 1]
                neurons[m] = neurons[m - 1]
                m -= 1
            fractions[m] = fraction
            neurons[m] = j
            found += 1
    return found


@numba.njit(nogil=True, fastmath=_FAST, cache=_CACHE)
def _rectify(z, slope, h):
    # not by max and min, which would turn a NaN into 0
    zero = z.dtype.type(0)
    for j in range(z.size):
        h[j] = z[j] if z[j] > zero else slope * z[j]


@numba.njit(nogil=True, fastmath=_FAST, cache=_CACHE)
def _rectify_between(left, right, fraction, slope, h):
    zero = left.dtype.type(0)
    for j in range(left.size):
        value = left[j] + fraction * (right[j] - left[j])
        h[j] = value if value > zero else slope * value


@numba.njit(nogil=True, cache=_CACHE)
def _grown(buffer, size):
    larger = np.empty(size, buffer.dtype)
    larger[: buffer.size] = buffer
    return larger


@numba.njit(nogil=True, fastmath=_FAST, cache=_CACHE)
def _measure(outputs, t, count, width, out):
    """Length, energy, pieces and span of the polygon with `count` vertices `outputs`."""
    low = high = np.float64(outputs[0])
    for i in range(1, count):
        square = 0.0
        for j in range(width):
            step = np.float64(outputs[i * width + j]) - np.float64(outputs[(i - 1) * width + j])
            square += step * step
        first = np.float64(outputs[i * width])
        low = min(low, first)
        high = max(high, first)
        out[0] += np.sqrt(square)
        if t[i] > t[i - 1]:
            out[1] += square / (t[i] - t[i - 1])
            out[2] += 1
    out[3] = high - low
