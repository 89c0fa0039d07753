// Reads by segmentio/kafka-go.
package main

import (
	"context"
	"time"

	"clients/rows"

	"github.com/segmentio/kafka-go"
)

func main() {
	asked := rows.Arguments()
	level := kafka.ReadUncommitted
	if asked.Committed {
		level = kafka.ReadCommitted
	}
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{asked.Bootstrap}, GroupID: asked.Group,
		GroupTopics: asked.Topics, StartOffset: kafka.FirstOffset, IsolationLevel: level, MaxWait: 200 * time.Millisecond})
	ctx, cancel := context.WithTimeout(context.Background(), rows.Limit)
	defer cancel()
	last := map[string]map[int]kafka.Message{}
	for left := asked.Count; left > 0; left-- {
		message, err := reader.FetchMessage(ctx)
		rows.Check(err)
		headers := make([]rows.Header, len(message.Headers))
		for i, header := range message.Headers {
			headers[i] = rows.Header{Name: header.Key, Value: header.Value}
		}
		rows.Show(message.Topic, message.Partition, message.Offset, message.Time, message.Key, message.Value, headers)
		if last[message.Topic] == nil {
			last[message.Topic] = map[int]kafka.Message{}
		}
		last[message.Topic][message.Partition] = message
	}
	for _, partitions := range last {
		for _, message := range partitions {
			rows.Check(reader.CommitMessages(ctx, message))
		}
	}
	rows.Check(reader.Close())
	rows.Flush()
}
