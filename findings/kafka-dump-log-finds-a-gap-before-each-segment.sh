#!/usr/bin/env bash
# Kafka 4.4.0: kafka-dump-log reports a gap in the offsets of each segment that does not begin at offset 0.
#
# Expected: "Non-consecutive offsets" is said of offsets that do not follow each other. Segments 0 and 2 hold the
# offsets 0 to 3, one by one.
# Seen: with --deep-iteration or --print-data-log, segment 2 is reported: "-1 is followed by 2". So is every segment
# but the first of any log, whole or not. The exit code is 0.
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
cat > Segments.java <<'END'
import java.io.File;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.*;

public class Segments {
    public static void main(String[] given) throws Exception {
        for (long base : new long[] {0, 2})
            try (FileRecords log = FileRecords.open(new File(String.format("%020d.log", base)))) {
                var records = new SimpleRecord[] {new SimpleRecord(1, "a".getBytes()), new SimpleRecord(2, "b".getBytes())};
                log.append(MemoryRecords.withRecords(base, Compression.NONE, records));
            }
    }
}
END
java -cp 'lib/*' Segments.java 2> made.txt
code=0
segments="$(printf '%020d.log,%020d.log' 0 2)"
java -cp 'lib/*' org.apache.kafka.tools.DumpLogSegments --deep-iteration --files "$segments" > said.txt 2> warned.txt || code=$?
echo "Kafka 4.4.0: offsets $(grep -o '| offset: [0-9]*' said.txt | grep -o '[0-9]*' | tr '\n' ' ')in two segments, exit code $code:"
grep -A 1 Non-consecutive warned.txt
[ "$code" -eq 0 ] && [ "$(grep 'is followed by' warned.txt)" = "  -1 is followed by 2" ]
