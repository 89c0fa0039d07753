#!/usr/bin/env bash
# Kafka 4.4.0: kafka-dump-log's decoder for bytes prints the names of Java objects, and not the bytes.
#
# Expected: with --value-decoder-class org.apache.kafka.tools.api.DefaultDecoder, which leaves bytes as they are, two
# records of the same three bytes are shown alike, in some form.
# Seen: "payload: [B@" and the object's number, another one for each record. The tool's other decoders are for text,
# which replaces what is not UTF-8, and for numbers of 4 and 8 bytes.
#
# Java 17 or newer and Maven are needed.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
cat > pom.xml <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>4.4.0</version></dependency>
  </dependencies>
</project>
END
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib
cat > Segment.java <<'END'
import java.io.File;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.*;

public class Segment {
    public static void main(String[] given) throws Exception {
        byte[] value = {(byte) 0xff, 1, 2};
        try (FileRecords log = FileRecords.open(new File(given[0]))) {
            var records = new SimpleRecord[] {new SimpleRecord(1, value), new SimpleRecord(2, value)};
            log.append(MemoryRecords.withRecords(0, Compression.NONE, records));
        }
    }
}
END
segment="$(printf '%020d.log' 0)"
java -cp 'lib/*' Segment.java "$segment" 2> made.txt
decoder=org.apache.kafka.tools.api.DefaultDecoder
java -cp 'lib/*' org.apache.kafka.tools.DumpLogSegments --print-data-log --value-decoder-class "$decoder" \
    --files "$segment" 2> warned.txt | grep -o 'payload: .*' > said.txt
echo "Kafka 4.4.0: two records of the bytes ff 01 02:"
cat said.txt
[ "$(grep -c '^payload: \[B@[0-9a-f]*$' said.txt)" -eq 2 ] && [ "$(sort -u said.txt | wc -l)" -eq 2 ]
