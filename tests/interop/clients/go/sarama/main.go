// Reads by sarama.
package main

import (
	"context"
	"errors"
	"sync"

	"clients/rows"

	"github.com/IBM/sarama"
)

type reader struct {
	lock sync.Mutex
	left int
	stop context.CancelFunc
}

func (r *reader) Setup(sarama.ConsumerGroupSession) error { return nil }

func (r *reader) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-session.Context().Done():
			return nil
		case message, open := <-claim.Messages():
			if !open || !r.take(session, message) {
				return nil
			}
		}
	}
}

func (r *reader) take(session sarama.ConsumerGroupSession, message *sarama.ConsumerMessage) bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.left == 0 {
		return false
	}
	headers := make([]rows.Header, len(message.Headers))
	for i, header := range message.Headers {
		headers[i] = rows.Header{Name: string(header.Key), Value: header.Value}
	}
	rows.Show(message.Topic, int(message.Partition), message.Offset, message.Timestamp, message.Key, message.Value, headers)
	session.MarkMessage(message, "")
	r.left--
	if r.left == 0 {
		r.stop()
	}
	return true
}

func main() {
	asked := rows.Arguments()
	settings := sarama.NewConfig()
	settings.Version = sarama.V3_6_0_0
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Consumer.Offsets.AutoCommit.Enable = false
	if asked.Committed {
		settings.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	group, err := sarama.NewConsumerGroup([]string{asked.Bootstrap}, asked.Group, settings)
	rows.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), rows.Limit)
	defer cancel()
	taker := &reader{left: asked.Count, stop: cancel}
	for ctx.Err() == nil {
		rows.Check(group.Consume(ctx, asked.Topics, taker))
	}
	rows.Check(group.Close())
	rows.Flush()
	if taker.left > 0 {
		rows.Check(errors.New("records did not come"))
	}
}
