import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Ships each order once, with kafka-clients and JDBC.
 *
 * <pre>BROKERS=localhost:9092 DATABASE_URL=jdbc:postgresql://localhost/app?user=app \
 *     java -cp 'jars/*' Consumer.java GROUP [COUNT]</pre>
 *
 * It ends after COUNT records, or runs until it is interrupted.
 */
public class Consumer {
    public static void main(String[] args) throws SQLException {
        long count = args.length > 1 ? Long.parseLong(args[1]) : Long.MAX_VALUE;
        Map<String, Object> config = Map.of("bootstrap.servers", System.getenv("BROKERS"), "group.id", args[0],
                "auto.offset.reset", "earliest", "enable.auto.commit", false, "isolation.level", "read_committed");
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
                Connection db = DriverManager.getConnection(System.getenv("DATABASE_URL"))) {
            db.setAutoCommit(false);
            consumer.subscribe(List.of("outbox.event.order"));
            while (count > 0) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    handle(db, "java", record);
                    db.commit();
                    // After the transaction, never before.
                    consumer.commitSync(Map.of(new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(record.offset() + 1)));
                    if (--count == 0) {
                        return;
                    }
                }
            }
        } // without a commit, closing rolls back
    }

    static void handle(Connection db, String consumer, ConsumerRecord<String, String> record) throws SQLException {
        int first = execute(db, "INSERT INTO handled_events (consumer, event_id) VALUES (?, ?) ON CONFLICT DO NOTHING",
                consumer, header(record, "id"));
        if (first > 0) {
            execute(db, "INSERT INTO shipments (consumer, order_id, event, lsn, seq) VALUES (?, ?, ?, ?::numeric, ?)",
                    consumer, record.key(), header(record, "eventType"), Long.toUnsignedString(position(header(record, "cdc-lsn"))),
                    Integer.parseInt(header(record, "cdc-seq")));
        }
    }

    /** position is an unsigned number: compare it by Long.compareUnsigned, then by cdc-seq. */
    static long position(String lsn) {
        String[] halves = lsn.split("/");
        return Long.parseLong(halves[0], 16) << 32 | Long.parseLong(halves[1], 16);
    }

    static String header(ConsumerRecord<String, String> record, String name) {
        return new String(record.headers().lastHeader(name).value(), StandardCharsets.UTF_8);
    }

    static int execute(Connection db, String sql, Object... values) throws SQLException {
        try (PreparedStatement statement = db.prepareStatement(sql)) {
            for (int i = 0; i < values.length; i++) {
                statement.setObject(i + 1, values[i]);
            }
            return statement.executeUpdate();
        }
    }
}
