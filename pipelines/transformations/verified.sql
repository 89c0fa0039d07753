-- Offsets of each partition in bronze: what a consumer has seen, and how many offsets have no record (markers,
-- compaction, aborted transactions).
CREATE MATERIALIZED VIEW verified_partitions AS
SELECT
  topic,
  partition,
  count(*) AS records,
  min(offset) AS first_offset,
  max(offset) AS last_offset,
  max(offset) - min(offset) + 1 - count(*) AS offsets_without_record,
  count(*) - count(DISTINCT offset) AS duplicates,
  max(timestamp) AS newest
FROM bronze_records
GROUP BY topic, partition;
