//! Reads by rskafka, which has neither groups nor isolation: all partitions from their starts, up to COUNT records.
//! BOOTSTRAP TOPIC,TOPIC… ISOLATION GROUP COUNT

use base64::{engine::general_purpose::STANDARD, Engine};
use rskafka::client::partition::{OffsetAt, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let asked: Vec<String> = std::env::args().collect();
    let client = ClientBuilder::new(vec![asked[1].clone()]).build().await?;
    let topics = client.list_topics().await?;
    let wanted = topics.iter().filter(|each| asked[2].split(',').any(|name| name == each.name));
    let mut left: usize = asked[5].parse()?;
    for topic in wanted {
        for &number in topic.partitions.iter() {
            let partition = client.partition_client(&topic.name, number, UnknownTopicHandling::Error).await?;
            let mut offset = partition.get_offset(OffsetAt::Earliest).await?;
            while left > 0 && offset < partition.get_offset(OffsetAt::Latest).await? {
                let (found, _) = partition.fetch_records(offset, 1..1 << 20, 200).await?;
                for each in found.iter().take(left) {
                    show(&topic.name, number, each);
                }
                left -= found.len().min(left);
                offset = found.last().map_or(offset, |each| each.offset) + 1;
            }
        }
    }
    Ok(())
}

fn show(topic: &str, number: i32, found: &rskafka::record::RecordAndOffset) {
    let record = &found.record;
    let encoded = |data: &Option<Vec<u8>>| data.as_ref().map(|bytes| STANDARD.encode(bytes));
    let headers: Vec<_> = record.headers.iter().map(|(name, data)| json!([name, STANDARD.encode(data)])).collect();
    let stamp = record.timestamp.timestamp_millis();
    println!("{}", json!([topic, number, found.offset, stamp, encoded(&record.key), encoded(&record.value), headers]));
}
