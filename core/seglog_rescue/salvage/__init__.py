"""Salvage: good batches out of files, disks and images, into new logs."""
