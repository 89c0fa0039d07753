// Reads a partition once by franz-go, and says how long that took from its first record on.
package main

import (
	"context"
	"encoding/json"
	"os"
	"strconv"
	"time"

	"clients/rows"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	bootstrap, topic := os.Args[1], os.Args[2]
	records, err := strconv.Atoi(os.Args[3])
	rows.Check(err)
	start := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumePartitions(start))
	rows.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), rows.Limit)
	defer cancel()
	count, size, begun := 0, 0, time.Time{}
	for count < records {
		fetches := client.PollFetches(ctx)
		rows.Check(fetches.Err())
		if begun.IsZero() {
			begun = time.Now()
		}
		fetches.EachRecord(func(each *kgo.Record) { count++; size += len(each.Value) })
	}
	seconds := time.Since(begun).Seconds()
	client.Close()
	rows.Check(json.NewEncoder(os.Stdout).Encode(map[string]any{"records": count, "size": size, "seconds": seconds}))
}
