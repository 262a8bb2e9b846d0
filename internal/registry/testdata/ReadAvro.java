import com.fasterxml.jackson.databind.ObjectMapper;
import io.apicurio.registry.serde.avro.AvroKafkaDeserializer;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.EncoderFactory;

/**
 * Reads records made by the connector with Apicurio's deserializer for Java, and writes them again
 * with Avro's. Each line of standard input is a topic, a record's value in hexadecimal digits, and
 * the JSON payload of the row. The argument is the address of the registry's own API.
 */
class ReadAvro {
    static final int FRAME = 5; // a zero byte, and the schema's number

    public static void main(String[] args) throws Exception {
        var read = new AvroKafkaDeserializer<GenericRecord>();
        read.configure(Map.of("apicurio.registry.url", args[0], "apicurio.registry.as-confluent", "true",
            "apicurio.registry.use-id", "contentId", "apicurio.registry.headers.enabled", "false"), false);
        var json = new ObjectMapper();
        var lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        int records = 0;
        for (String line; (line = lines.readLine()) != null; records++) {
            String[] columns = line.split("\t");
            byte[] data = HexFormat.of().parseHex(columns[1]);
            GenericRecord value = read.deserialize(columns[0], data);
            var payload = json.readTree(columns[2]);
            if (!value.get("id").equals(payload.get("id").asLong()) || !value.get("ratio").equals(payload.get("ratio").asDouble())
                || !value.get("state").toString().equals(payload.get("state").asText())) {
                throw new Exception(columns[2] + ": read as " + value);
            }
            var again = new ByteArrayOutputStream();
            again.write(data, 0, FRAME);
            var encoder = EncoderFactory.get().binaryEncoder(again, null);
            new GenericDatumWriter<GenericRecord>(value.getSchema()).write(value, encoder);
            encoder.flush();
            if (!Arrays.equals(again.toByteArray(), data)) {
                throw new Exception(columns[2] + ": " + columns[1] + " is written as " + HexFormat.of().formatHex(again.toByteArray()));
            }
        }
        System.out.println(records);
        System.exit(0); // the client has threads of its own
    }
}
