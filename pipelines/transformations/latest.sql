-- The live value of each key: its last record, unless that is a tombstone.
CREATE MATERIALIZED VIEW latest_values AS
SELECT topic, partition, key, last.value AS value, last.offset AS offset, last.timestamp AS timestamp
FROM (
  SELECT topic, partition, key, max_by(struct(value, offset, timestamp), offset) AS last
  FROM bronze_records
  WHERE key IS NOT NULL
  GROUP BY topic, partition, key
)
WHERE last.value IS NOT NULL;
