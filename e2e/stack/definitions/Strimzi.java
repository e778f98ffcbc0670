// Prints the definitions of KafkaTopic and KafkaUser as one JSON array, from the classes that Strimzi publishes (io.strimzi:api): the
// definitions themselves are in no registry. Fields, their types and the words that they take are those by which Strimzi's operators read
// an object; limits and rules that its own generator adds are not in here. The newest version that the classes name is served.

import com.fasterxml.jackson.annotation.JsonSubTypes;
import com.fasterxml.jackson.databind.BeanDescription;
import com.fasterxml.jackson.databind.JavaType;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.introspect.BeanPropertyDefinition;
import io.fabric8.kubernetes.client.CustomResource;
import io.strimzi.api.kafka.model.topic.KafkaTopic;
import io.strimzi.api.kafka.model.topic.KafkaTopicSpec;
import io.strimzi.api.kafka.model.user.KafkaUser;
import io.strimzi.api.kafka.model.user.KafkaUserSpec;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

public final class Strimzi {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    // Where Strimzi keeps what it does not know of an object.
    private static final String UNKNOWN = "additionalProperties";

    private Strimzi() {}

    public static void main(String[] arguments) throws Exception {
        List<Object> definitions = List.of(
            definition(KafkaTopic.RESOURCE_KIND, KafkaTopic.RESOURCE_PLURAL, KafkaTopic.VERSIONS, KafkaTopicSpec.class),
            definition(KafkaUser.RESOURCE_KIND, KafkaUser.RESOURCE_PLURAL, KafkaUser.VERSIONS, KafkaUserSpec.class));
        System.out.println(MAPPER.writeValueAsString(definitions));
    }

    private static Map<String, Object> definition(String kind, String plural, List<String> versions, Class<?> spec) {
        if (!versions.contains("v1")) {
            throw new IllegalStateException(kind + " has the versions " + versions + ", and not v1");
        }
        Map<String, Object> schema = object(Map.of(
            "spec", schema(MAPPER.constructType(spec)),
            "status", Map.of("type", "object", "x-kubernetes-preserve-unknown-fields", true)));
        Map<String, Object> version = Map.of(
            "name", "v1", "served", true, "storage", true, "subresources", Map.of("status", Map.of()),
            "schema", Map.of("openAPIV3Schema", schema));
        Map<String, Object> names = Map.of(
            "kind", kind, "listKind", kind + "List", "plural", plural, "singular", kind.toLowerCase(java.util.Locale.ROOT));
        return Map.of(
            "apiVersion", "apiextensions.k8s.io/v1",
            "kind", "CustomResourceDefinition",
            "metadata", Map.of("name", plural + "." + KafkaTopic.RESOURCE_GROUP),
            "spec", Map.of(
                "group", KafkaTopic.RESOURCE_GROUP, "scope", "Namespaced", "names", names, "versions", List.of(version)));
    }

    private static Map<String, Object> schema(JavaType type) {
        Class<?> raw = type.getRawClass();
        if (raw == String.class) {
            return Map.of("type", "string");
        } else if (raw == boolean.class || raw == Boolean.class) {
            return Map.of("type", "boolean");
        } else if (raw == int.class || raw == Integer.class || raw == long.class || raw == Long.class) {
            return Map.of("type", "integer");
        } else if (raw == double.class || raw == Double.class) {
            return Map.of("type", "number");
        } else if (raw.isEnum()) {
            Object[] words = Arrays.stream(raw.getEnumConstants()).map(word -> MAPPER.convertValue(word, String.class)).toArray();
            return Map.of("type", "string", "enum", words);
        } else if (type.isCollectionLikeType()) {
            return Map.of("type", "array", "items", schema(type.getContentType()));
        } else if (type.isMapLikeType()) {
            return type.getContentType().getRawClass() == Object.class
                ? Map.of("type", "object", "x-kubernetes-preserve-unknown-fields", true)
                : Map.of("type", "object", "additionalProperties", schema(type.getContentType()));
        } else if (raw == Object.class || raw.isInterface()) {
            throw new IllegalStateException("no schema says what a " + type + " is");
        }
        return object(properties(type));
    }

    // Of a type that has several forms, the fields of all of them, as Strimzi's own definitions have it.
    private static Map<String, Object> properties(JavaType type) {
        Map<String, Object> all = new LinkedHashMap<>();
        JsonSubTypes forms = type.getRawClass().getAnnotation(JsonSubTypes.class);
        if (forms != null) {
            Set<String> names = new LinkedHashSet<>();
            for (JsonSubTypes.Type form : forms.value()) {
                names.add(form.name());
                all.putAll(properties(MAPPER.constructType(form.value())));
            }
            all.put("type", Map.of("type", "string", "enum", new ArrayList<>(names)));
            return all;
        }
        BeanDescription bean = MAPPER.getSerializationConfig().introspect(type);
        for (BeanPropertyDefinition field : bean.findProperties()) {
            if (!field.getName().equals(UNKNOWN)) {
                all.put(field.getName(), schema(field.getPrimaryType()));
            }
        }
        return all;
    }

    private static Map<String, Object> object(Map<String, Object> properties) {
        return properties.isEmpty() ? Map.of("type", "object") : Map.of("type", "object", "properties", properties);
    }
}
