"""Which replica of a partition to trust, and what each choice loses: facts, their comparison, and the rule."""
