import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Map;

/** Prints "broker KEY DEFAULT" and "topic KEY DEFAULT" for each key of the Kafka on the class path, whatever its release. */
public final class Keys {
    public static void main(String[] arguments) throws Exception {
        print("broker", definition("kafka.server.KafkaConfig", "kafka.server.KafkaConfig$"));
        print("topic", definition("org.apache.kafka.storage.internals.log.LogConfig", "kafka.log.LogConfig$"));
    }

    /** The ConfigDef of the first of these classes that is there: of a static method, a static field, or a Scala object. */
    private static Object definition(String... names) throws Exception {
        for (String name : names) {
            try {
                Class<?> type = Class.forName(name);
                Object owner = name.endsWith("$") ? type.getField("MODULE$").get(null) : null;
                for (Method method : type.getDeclaredMethods())
                    if (method.getName().toLowerCase().contains("configdef") && method.getParameterCount() == 0 && (owner != null || Modifier.isStatic(method.getModifiers()))) {
                        method.setAccessible(true);
                        return method.invoke(owner);
                    }
            } catch (ClassNotFoundException e) {
                continue;
            }
        }
        throw new IllegalStateException("no ConfigDef");
    }

    private static void print(String kind, Object definition) throws Exception {
        Map<?, ?> keys = (Map<?, ?>) definition.getClass().getMethod("configKeys").invoke(definition);
        for (Map.Entry<?, ?> entry : keys.entrySet()) {
            Object key = entry.getValue();
            System.out.println(kind + " " + entry.getKey() + " " + key.getClass().getField("defaultValue").get(key));
        }
    }
}
