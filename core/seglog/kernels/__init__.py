"""Arrays in, arrays out: the hot loops. No I/O, no exceptions, no objects.

A kernel takes uint8 buffers, native integer arrays, the column tables of `seglog.layout` and plain integers;
it returns arrays it was given or status integers. It checks every bound itself: a hostile length never reads
or writes outside its buffer. Callers allocate, and turn statuses into errors.
"""
