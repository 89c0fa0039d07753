"""What consumer groups are beyond their committed offsets: states and members, and the applications that use them."""
