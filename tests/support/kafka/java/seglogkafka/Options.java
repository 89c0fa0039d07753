package seglogkafka;

import com.fasterxml.jackson.databind.JsonNode;

import java.io.File;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** One request: a JSON object. Remembers which fields were asked for, so that a misspelt one is an error and not ignored. */
final class Options {
    static final class Refused extends RuntimeException {
        Refused(String message) { super(message); }
    }

    private final JsonNode request;
    private final Set<String> known = new HashSet<>(Set.of("command"));

    Options(JsonNode request) { this.request = request; }

    JsonNode field(String name) {
        known.add(name);
        JsonNode value = request.get(name);
        return value == null || value.isNull() ? null : value;
    }

    boolean has(String name) { return field(name) != null; }

    String text(String name, String fallback) { JsonNode v = field(name); return v == null ? fallback : v.asText(); }

    boolean flag(String name, boolean fallback) { JsonNode v = field(name); return v == null ? fallback : v.asBoolean(); }

    double ratio(String name, double fallback) { JsonNode v = field(name); return v == null ? fallback : v.asDouble(); }

    long number(String name, long fallback) {
        JsonNode v = field(name);
        if (v == null) return fallback;
        if (!v.canConvertToLong() || !v.isIntegralNumber()) throw new Refused(name + " must be a whole number, not " + v);
        return v.asLong();
    }

    int integer(String name, int fallback) { return Math.toIntExact(number(name, fallback)); }

    File file(String name) {
        JsonNode v = field(name);
        if (v == null) throw new Refused("missing field " + name);
        return new File(v.asText()).getAbsoluteFile();
    }

    File directory() {
        File directory = file("directory");
        if (!directory.isDirectory()) throw new Refused("no such directory: " + directory);
        return directory;
    }

    /** An array, or one value standing for an array of one. */
    List<JsonNode> many(String name) {
        List<JsonNode> values = new ArrayList<>();
        JsonNode v = field(name);
        if (v == null) throw new Refused("missing field " + name);
        if (v.isArray()) v.forEach(values::add);
        else values.add(v);
        return values;
    }

    List<String> texts(String name, String fallback) {
        return has(name) ? many(name).stream().map(JsonNode::asText).toList() : List.of(fallback);
    }

    /** To be called once every field has been asked for and before anything is changed. */
    void finish() {
        request.fieldNames().forEachRemaining(name -> {
            if (!known.contains(name)) throw new Refused("unknown field " + name);
        });
    }
}
