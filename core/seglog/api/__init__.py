"""The public functions, grouped by what they do to a log. `import seglog` offers them all under their own names.

Every function takes paths as text or `Path`, and the keyword arguments of `operations.workspace.CommonArguments`.
"""
