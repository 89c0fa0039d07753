"""Object stores and web servers as a read-only file system."""
