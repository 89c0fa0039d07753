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
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.LogConfig;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Replays metadata records into Kafka's image of a cluster, and gives the records of a snapshot of that image. Says what this Kafka knows. */
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

    /** What this Kafka knows: the levels of its features, and the keys of a topic's configuration with their defaults. */
    static Object known(Options options) {
        options.finish();
        Map<String, Object> levels = new TreeMap<>(), features = new TreeMap<>(), keys = new TreeMap<>();
        for (MetadataVersion level : MetadataVersion.VERSIONS) levels.put(String.valueOf(level.featureLevel()), level.version());
        for (Feature feature : Feature.PRODUCTION_FEATURES) features.put(feature.featureName(), feature.latestProduction());
        for (String key : LogConfig.nonInternalConfigNames()) keys.put(key, String.valueOf(LogConfig.configDefCopy().defaultValues().get(key)));
        return Answers.object("metadataVersions", levels, "latest", MetadataVersion.LATEST_PRODUCTION.featureLevel(), "features", features, "topicKeys", keys);
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
