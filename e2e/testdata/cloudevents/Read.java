import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cloudevents.CloudEvent;
import io.cloudevents.kafka.CloudEventDeserializer;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Reads CloudEvents of a topic, and prints each as a line of JSON: Read BROKERS TOPIC COUNT. */
class Read {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", args[0], "group.id", "java-" + args[1], "auto.offset.reset", "earliest");
        int count = Integer.parseInt(args[2]);
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new CloudEventDeserializer())) {
            consumer.subscribe(List.of(args[1]));
            while (count > 0) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println(line(record.value()));
                    count--;
                }
            }
        }
    }

    static String line(CloudEvent event) throws Exception {
        ObjectNode out = JSON.createObjectNode();
        ObjectNode attributes = out.putObject("attributes");
        for (String name : event.getAttributeNames()) {
            attributes.put(name, text(event.getAttribute(name)));
        }
        for (String name : event.getExtensionNames()) {
            attributes.put(name, text(event.getExtension(name)));
        }
        if (event.getData() == null) {
            out.putNull("data");
        } else if (event.getDataContentType().contains("json")) {
            out.set("data", JSON.readTree(event.getData().toBytes()));
        } else if (event.getDataContentType().startsWith("text/")) {
            out.put("data", new String(event.getData().toBytes(), "UTF-8"));
        } else {
            out.put("data", Base64.getEncoder().encodeToString(event.getData().toBytes()));
        }
        return JSON.writeValueAsString(out);
    }

    static String text(Object value) {
        if (value instanceof OffsetDateTime time) {
            return time.withOffsetSameInstant(ZoneOffset.UTC).format(DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"));
        }
        return String.valueOf(value);
    }
}
