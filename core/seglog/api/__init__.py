"""The public functions, by what they do to a log. `import seglog` has them all under their own names.

Everything here takes paths as text or `Path`. `CommonArguments` are keyword arguments that all of them share.
"""
