"""The hot loops: arrays in, arrays out. No I/O, no exceptions, no objects.

A kernel takes uint8 buffers, native integer arrays, the column tables of `seglog.layout` and plain integers. It
fills arrays that the caller passes and returns integers, often a status. It checks every bound itself: a hostile
length never makes it read or write outside its buffer. Callers allocate, and turn statuses into errors.
"""
