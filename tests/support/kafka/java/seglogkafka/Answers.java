package seglogkafka;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;

import java.util.LinkedHashMap;
import java.util.Map;

/** JSON in and out. Field order is the order of writing: answers are compared as text. */
final class Answers {
    static final ObjectMapper JSON = new ObjectMapper();

    private Answers() { }

    static String json(Object value) {
        try {
            return JSON.writeValueAsString(value);
        } catch (JsonProcessingException e) {
            throw new IllegalStateException(e);
        }
    }

    static Map<String, Object> object(Object... namesAndValues) {
        Map<String, Object> fields = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) fields.put((String) namesAndValues[i], namesAndValues[i + 1]);
        return fields;
    }

    static Map<String, Object> failure(Throwable e) {
        return object("error", e.getClass().getSimpleName(), "message", String.valueOf(e.getMessage()));
    }
}
