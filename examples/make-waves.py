#!/usr/bin/env python3
"""Draw examples/site/waves.png: a sea at dusk, 1200 x 420, about 1.5 MB.

    python3 examples/make-waves.py > examples/site/waves.png
    python3 examples/make-waves.py | cmp - examples/site/waves.png

The second command compares the picture in the repository with the one drawn here.

The example site needs one file that is far larger than a TLS record and worth looking at. Two
choices keep its bytes the same on every machine:

* The pixels are stored, not compressed. Two builds of zlib may compress the same picture differently;
  stored blocks are identical, and the size follows from width and height alone.
* Except for one table of sines, rounded to 15 bits, colours are computed in integers, so the last
  bits of a platform's floating point never reach a pixel.

The site's first page shows the picture's SHA-256: if you change the drawing, change it there too.
"""

import math
import struct
import sys
import zlib

WIDTH, HEIGHT = 1200, 420
HORIZON = 172
SUN_X, SUN_Y, SUN_RADIUS = 790, 150, 44

SKY = [(0, (34, 52, 98)), (70, (96, 92, 142)), (130, (222, 138, 126)), (HORIZON, (250, 204, 142))]
SUN = (255, 240, 200)
FAR_SEA, NEAR_SEA = (206, 148, 134), (8, 32, 62)
THIN_SEA = (96, 176, 178)
FOAM = (236, 236, 226)

LAYERS = 15

ONE = 1 << 15
SINE = [round(math.sin(2 * math.pi * i / 4096) * ONE) for i in range(4096)]


def main():
    noise = Noise(0x5EA1)
    columns = [column(x, noise) for x in range(WIDTH)]
    rows = bytearray()
    for y in range(HEIGHT):
        rows.append(0)  # filter type None (PNG 9.2)
        for x in range(WIDTH):
            rows += bytes(columns[x][y])
    sys.stdout.buffer.write(png(WIDTH, HEIGHT, bytes(rows)))


def column(x, noise):
    """The colours of one column, from the top down."""
    pixels = [sky(x, y) for y in range(HEIGHT)]
    swells = [swell(x, layer) for layer in range(LAYERS)]
    for layer, (crest, foam) in enumerate(swells):
        # Skip rows hidden by nearer swells, whose first pixel is half transparent.
        hidden = min((nearer for nearer, _ in swells[layer + 1 :]), default=HEIGHT << 8)
        paint(pixels, x, layer, crest, foam, min(HEIGHT, (hidden >> 8) + 1))
    # Half a step of noise hides the bands that 8 bits a channel leave in a slow gradient.
    return [tuple(clamp((c + noise.below(512) - 256) >> 8) for c in p) for p in pixels]


def sky(x, y):
    """Colour in 1/256 of a step: a gradient, and the glow around the sun."""
    colour = gradient(SKY, min(y, HORIZON))
    far = (x - SUN_X) ** 2 + (y - SUN_Y) ** 2
    edge = SUN_RADIUS**2
    if far < edge:
        # The last 2 pixels fade, so that the rim is smooth.
        return mix(colour, SUN, min(256, (edge - far) * 256 // (4 * SUN_RADIUS)))
    return mix(colour, SUN, 150 * edge // (far + 2 * edge))


def swell(x, layer):
    """Height of the crest (1/256 pixel from the top) and its foam, of 256.

    Near layers are taller and longer.
    """
    near = nearness(layer)
    base = HORIZON + 4 + layer * layer * (HEIGHT - HORIZON - 24) // (LAYERS - 1) ** 2
    height = 1 + near * 22 // 256
    length = 70 + near * 430 // 256
    shift = layer * 1711

    rise = 5 * sine(x * 4096 // length + shift) + 2 * sine(x * 8192 // length * 13 // 10 + 3 * shift)
    chop = sine(x * 4096 // (length // 5) + 7 * shift)
    crest = (base << 8) - (rise * 6 + chop * 5) * height * 256 // (42 * ONE)
    foam = max(0, (rise - 2 * ONE) * 200 // (5 * ONE)) * (40 + near) // 296
    return max(crest, HORIZON << 8), foam


def paint(pixels, x, layer, crest, foam, end):
    """Paint one swell over the pixels behind it, from its crest down to the row before `end`."""
    near = nearness(layer)
    body = mix(shade(FAR_SEA), NEAR_SEA, near * (512 - near) // 256)
    thick = (3 + near * 40 // 256) << 8
    band = (2 + near // 64) << 8
    for y in range(crest >> 8, end):
        deep = max(0, (y << 8) + 128 - crest)
        # Light comes through the thin top of a wave.
        lit = max(0, thick - deep) * 110 // thick
        colour = mix(body, THIN_SEA, lit * near // 256)
        colour = mix(colour, SUN, glitter(x, y, layer))
        colour = mix(colour, FOAM, foam * max(0, min(256, band - deep)) // 256)
        if y == crest >> 8:
            colour = blend(pixels[y], colour, 256 - (crest & 255))
        pixels[y] = colour


def nearness(layer):
    """0 at the horizon, 256 at the viewer's feet."""
    return layer * 256 // (LAYERS - 1)


def glitter(x, y, layer):
    """Sunlight reflected by a facet at this point, of 256."""
    path = 26 + (y - HORIZON) // 2
    off = abs(x - SUN_X)
    if off >= path:
        return 0
    facet = sine(y * 1100 + layer * 911 + sine(x * 61 + layer * 500) // 24) + sine(x * 97 + y * 1657)
    return max(0, facet - ONE // 3) * 170 // ONE * (path - off) // path * (HEIGHT + 40 - y) // 320


class Noise:
    """A linear congruential generator: its only requirement is the same sequence everywhere."""

    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
        return (self.state >> 40) % bound


def sine(turn):
    """Sine of turn/4096 of a circle, times ONE."""
    return SINE[turn & 4095]


def shade(colour):
    return tuple(c << 8 for c in colour)


def mix(fine, colour, amount):
    """`fine` (1/256 steps) moved towards the 8-bit `colour` by amount/256."""
    return blend(fine, shade(colour), amount)


def blend(a, b, amount):
    amount = max(0, min(256, amount))
    return tuple((p * (256 - amount) + q * amount) >> 8 for p, q in zip(a, b))


def gradient(stops, y):
    for (y0, c0), (y1, c1) in zip(stops, stops[1:]):
        if y <= y1:
            return mix(shade(c0), c1, (y - y0) * 256 // (y1 - y0))
    return shade(stops[-1][1])


def clamp(value):
    return max(0, min(255, value))


def png(width, height, rows):
    """A true-colour PNG, 8 bits a channel, whose one IDAT holds the rows as they are."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", stored(rows)) + chunk(b"IEND", b"")


def stored(data):
    """A zlib stream (RFC 1950) of stored blocks (RFC 1951, 3.2.4)."""
    out = bytearray(b"\x78\x01")
    for start in range(0, len(data), 65535):
        block = data[start : start + 65535]
        last = start + 65535 >= len(data)
        out += struct.pack("<BHH", last, len(block), len(block) ^ 0xFFFF) + block
    return bytes(out + struct.pack(">I", zlib.adler32(data)))


if __name__ == "__main__":
    main()
