"""One short module a figure: which networks it needs, tidy results out, and the drawing of them."""
