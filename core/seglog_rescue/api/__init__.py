"""The public functions of this package. `import seglog` offers them under their own names."""
