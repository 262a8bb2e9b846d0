#!/bin/sh
# Apache Kafka Connect 4.4.0, JsonConverter
#
# JsonConverter with schemas reads back what it wrote of a float NaN or Infinity as
# 0.0, without an error. So does it read each value of another type than the
# schema's: "12" under int64 is 0, 12 under boolean is false, and a number that int64
# cannot hold is another number.
#
# NaN is written as the JSON string "NaN" with the type double, and the reader takes
# the number of a JSON node, which of a string is 0. A round trip through the same
# converter turns a measurement that is missing into one that is zero.
#
# The schema travels with the value so that types are kept, and JSON without the two
# fields is refused (DataException): one would expect the same of a value that does
# not fit its schema, and that a converter reads its own output.
#
# Needs a JDK 17, Maven and Python 3.
. "$(dirname "$0")/lib.sh"

jars org.apache.kafka:connect-json:4.4.0

cat >Main.java <<'JAVA'
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.json.JsonConverter;

public class Main {
    static final JsonConverter CONVERTER = new JsonConverter();
    static boolean as_seen = true;

    static void read(String json, Object expected) {
        Object value = CONVERTER.toConnectData("t", json.getBytes()).value();
        System.out.println(json + " is read as " + value);
        as_seen &= value.equals(expected);
    }

    static String schema(String type, String payload) {
        return "{\"schema\":{\"type\":\"" + type + "\",\"optional\":false},\"payload\":" + payload + "}";
    }

    public static void main(String[] args) {
        CONVERTER.configure(Map.of("schemas.enable", "true"), false);
        for (double written : new double[] {1.5, Double.NaN, Double.POSITIVE_INFINITY}) {
            String json = new String(CONVERTER.fromConnectData("t", Schema.FLOAT64_SCHEMA, written));
            System.out.print(written + " is written as ");
            read(json, written == 1.5 ? 1.5 : 0.0);
        }
        read(schema("int64", "\"12\""), 0L);
        read(schema("boolean", "12"), false);
        read(schema("int64", "99999999999999999999"), 7766279631452241919L);
        System.exit(as_seen ? 0 : 1);
    }
}
JAVA
java -cp 'jars/*' Main.java 2>java.log || { cat java.log; exit 1; }
