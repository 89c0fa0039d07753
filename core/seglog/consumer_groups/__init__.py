"""Consumer groups as the coordinator's topic records them: committed offsets, members, states."""
