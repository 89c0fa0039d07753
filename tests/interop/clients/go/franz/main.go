// Reads by franz-go.
package main

import (
	"context"

	"clients/rows"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	asked := rows.Arguments()
	level := kgo.ReadUncommitted()
	if asked.Committed {
		level = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(asked.Bootstrap), kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.FetchIsolationLevel(level))
	rows.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), rows.Limit)
	defer cancel()
	for left := asked.Count; left > 0; {
		fetches := client.PollRecords(ctx, left)
		rows.Check(fetches.Err())
		records := fetches.Records()
		for _, each := range records {
			headers := make([]rows.Header, len(each.Headers))
			for i, header := range each.Headers {
				headers[i] = rows.Header{Name: header.Key, Value: header.Value}
			}
			rows.Show(each.Topic, int(each.Partition), each.Offset, each.Timestamp, each.Key, each.Value, headers)
		}
		rows.Check(client.CommitRecords(ctx, records...))
		left -= len(records)
	}
	rows.Flush()
	client.Close()
}
