"""Bringing back what is lost or in danger: what a broker would do, salvage, transplants, a cluster's lost metadata,
backups, and a dead cluster's records served to clients."""
