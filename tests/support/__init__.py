"""What tests share: real Kafka, fixtures, and checks that Java is there."""
