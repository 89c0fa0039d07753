"""Consumer groups: committed offsets, states and members, and the applications that use them."""
