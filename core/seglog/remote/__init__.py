"""Object stores and web servers as a file system that is only read."""
