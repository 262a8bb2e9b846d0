import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.debezium.connector.postgresql.PostgresConnectorTask;
import io.debezium.transforms.outbox.EventRouter;
import java.io.File;
import java.io.PrintStream;
import java.io.FileOutputStream;
import java.io.FileDescriptor;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTaskContext;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.storage.OffsetStorageReader;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;

/**
 * What Debezium's connector, its outbox event router and Connect's converters make of a
 * slot's log, as JSON lines. The argument is the file of a request (reference_test.go).
 */
public class Reference {
    static final ObjectMapper JSON = new ObjectMapper();

    /** A router remembers the schema of a table, so each table has a router. */
    record Set(Map<String, Object> options, Map<String, EventRouter<SourceRecord>> routers, Converter key, Converter value, HeaderConverter header) {
        EventRouter<SourceRecord> router(String table) {
            return routers.computeIfAbsent(table, t -> {
                EventRouter<SourceRecord> router = new EventRouter<>();
                router.configure(options);
                return router;
            });
        }
    }

    static Map<String, Object> options(JsonNode node) {
        Map<String, Object> options = new HashMap<>();
        if (node != null) {
            node.properties().forEach(e -> options.put(e.getKey(), e.getValue().asText()));
        }
        return options;
    }

    static Converter converter(JsonNode node, boolean isKey) throws Exception {
        Map<String, Object> options = options(node);
        Converter converter = (Converter) Class.forName((String) options.remove("class")).getDeclaredConstructor().newInstance();
        converter.configure(options, isKey);
        return converter;
    }

    static String base64(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    static Object id(SourceRecord change) {
        return change.value() instanceof Struct envelope && envelope.get("after") instanceof Struct row ? row.get("id") : null;
    }

    static void publish(PrintStream out, String name, Set set, SourceRecord change) throws Exception {
        ObjectNode line = JSON.createObjectNode().put("set", name).put("row", String.valueOf(id(change))).put("table", change.topic());
        try {
            SourceRecord copy = change.newRecord(change.topic(), change.kafkaPartition(), change.keySchema(), change.key(),
                change.valueSchema(), change.value(), change.timestamp(), change.headers().duplicate()); // the router adds headers
            SourceRecord record = set.router(change.topic()).apply(copy);
            if (record == null || record == copy) {
                return; // nothing to publish; no row
            }
            line.put("topic", record.topic()).put("timestamp", record.timestamp()).put("partition", record.kafkaPartition());
            ArrayNode headers = line.putArray("headers");
            for (Header h : record.headers()) {
                headers.addArray().add(h.key()).add(base64(set.header.fromConnectHeader(record.topic(), h.key(), h.schema(), h.value())));
            }
            line.put("key", base64(set.key.fromConnectData(record.topic(), record.keySchema(), record.key())));
            line.put("value", base64(set.value.fromConnectData(record.topic(), record.valueSchema(), record.value())));
        }
        catch (Throwable e) {
            line.put("error", e.getClass().getSimpleName() + ": " + e.getMessage());
        }
        out.println(JSON.writeValueAsString(line));
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        JsonNode request = JSON.readTree(new File(args[0]));
        Map<String, Set> sets = new LinkedHashMap<>();
        for (var e : request.get("sets").properties()) {
            JsonNode s = e.getValue();
            HeaderConverter header = new SimpleHeaderConverter();
            header.configure(Map.of());
            sets.put(e.getKey(), new Set(options(s.get("router")), new HashMap<>(), converter(s.get("key"), true), converter(s.get("value"), false), header));
        }
        Map<String, String> connector = new HashMap<>();
        options(request.get("connector")).forEach((k, v) -> connector.put(k, (String) v));
        OffsetStorageReader reader = new OffsetStorageReader() {
            public <T> Map<String, Object> offset(Map<String, T> partition) { return null; }
            public <T> Map<Map<String, T>, Map<String, Object>> offsets(Collection<Map<String, T>> partitions) { return new HashMap<>(); }
        };
        SourceTaskContext context = (SourceTaskContext) Proxy.newProxyInstance(Reference.class.getClassLoader(),
            new Class<?>[] { SourceTaskContext.class }, (proxy, method, a) -> switch (method.getName()) {
                case "configs" -> connector;
                case "offsetStorageReader" -> reader;
                default -> null;
            });
        PostgresConnectorTask task = new PostgresConnectorTask();
        task.initialize(context);
        task.start(connector);
        String end = request.get("end").asText();
        boolean go = true;
        while (go) {
            List<SourceRecord> batch = task.poll();
            if (batch == null) {
                continue;
            }
            for (SourceRecord change : batch) {
                if (change.topic().endsWith("." + end)) {
                    go = false;
                    continue;
                }
                for (var e : sets.entrySet()) {
                    publish(out, e.getKey(), e.getValue(), change);
                }
            }
        }
        task.stop();
        System.exit(0);
    }
}
