import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.UUID;

/**
 * Places an order and writes its events, each in the transaction of its change, with JDBC. With Spring, a
 * method that is {@code @Transactional} and a JdbcTemplate (or, after
 * {@code EntityManager.flush()}, JPA) do the same: all use the transaction's connection.
 *
 * <pre>DATABASE_URL=jdbc:postgresql://localhost/app?user=app java -cp 'jars/*' Writer.java 42</pre>
 */
public class Writer {
    public static void main(String[] args) throws SQLException {
        long id = Long.parseLong(args[0]);
        try (Connection db = DriverManager.getConnection(System.getenv("DATABASE_URL"))) {
            db.setAutoCommit(false);
            execute(db, "INSERT INTO orders (id, status) VALUES (?, 'PLACED')", id);
            event(db, id, "OrderPlaced", "PLACED");
            db.commit();

            // The update locks the row, which keeps the events of an order in the order
            // of its changes.
            execute(db, "UPDATE orders SET status = 'PAID' WHERE id = ?", id);
            event(db, id, "OrderPaid", "PAID");
            db.commit();
        } // without a commit, closing rolls back
    }

    static void event(Connection db, long order, String type, String status) throws SQLException {
        String payload = "{\"id\": " + order + ", \"status\": \"" + status + "\"}"; // a library's, in earnest
        execute(db, "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (?, 'order', ?, ?, ?::jsonb)",
                UUID.randomUUID(), Long.toString(order), type, payload);
    }

    static void execute(Connection db, String sql, Object... values) throws SQLException {
        try (PreparedStatement statement = db.prepareStatement(sql)) {
            for (int i = 0; i < values.length; i++) {
                statement.setObject(i + 1, values[i]);
            }
            statement.executeUpdate();
        }
    }
}
