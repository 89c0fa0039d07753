package seglogkafka;

import java.util.List;

/** What Kafka 4.3 and 4.4 call differently. The imports `utils.*` and `utils.internals.*` hide what has only moved. */
final class Versions {
    private Versions() { }

    /** Closes a log, index or segment file and leaves it as it is. 4.3's `close()` trims the files, 4.4's does not. */
    static void closeAsIs(Object file) {
        for (String name : List.of("closeHandlers", "closeHandler", "closeQuietly", "close"))
            if (call(file, name)) return;
        throw new IllegalStateException(file.getClass() + " cannot be closed");
    }

    /** Calls a method without parameters if there is one of this name. */
    static boolean call(Object target, String name) {
        try {
            target.getClass().getMethod(name).invoke(target);
            return true;
        } catch (NoSuchMethodException e) {
            return false;
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }
}
