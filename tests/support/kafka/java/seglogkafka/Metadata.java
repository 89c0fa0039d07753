package seglogkafka;

import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/** Replays metadata records into Kafka's image of a cluster, and gives the records of a snapshot of that image. */
final class Metadata {
    private Metadata() { }

    static Object image(Options options) {
        List<String> records = options.texts("records", "");
        options.finish();
        MetadataImage image = MetadataImage.EMPTY;
        for (int i = 0; i < records.size(); i++) { // one by one: a topic's values that come in one delta with its end would stay
            MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
            delta.replay(read(records.get(i)).message());
            image = delta.apply(new MetadataProvenance(i, 0, 0, true));
        }
        RecordListWriter writer = new RecordListWriter();
        image.write(writer, new ImageWriterOptions.Builder(image).setEligibleLeaderReplicasEnabled(true).build());
        List<String> written = new ArrayList<>();
        for (ApiMessageAndVersion record : writer.records()) written.add(write(record));
        return Answers.object("records", written);
    }

    private static ApiMessageAndVersion read(String record) {
        ByteBuffer bytes = ByteBuffer.wrap(Base64.getDecoder().decode(record));
        return MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(bytes), bytes.remaining());
    }

    private static String write(ApiMessageAndVersion record) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer bytes = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
        MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(bytes));
        return Base64.getEncoder().encodeToString(bytes.array());
    }
}
