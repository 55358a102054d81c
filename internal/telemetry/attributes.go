package telemetry

import (
	"log/slog"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
)

// maxText bounds the text of one attribute that code has given.
const maxText = 1024

// Attributes are attributes of package log/slog as OpenTelemetry has them. Groups become prefixes.
func Attributes(attrs []slog.Attr) []attribute.KeyValue {
	return appendAttributes(make([]attribute.KeyValue, 0, len(attrs)), "", attrs)
}

func appendAttributes(to []attribute.KeyValue, prefix string, attrs []slog.Attr) []attribute.KeyValue {
	for _, a := range attrs {
		v, key := a.Value.Resolve(), prefix+a.Key
		if a.Key == "" && v.Kind() != slog.KindGroup {
			continue
		}
		switch v.Kind() {
		case slog.KindBool:
			to = append(to, attribute.Bool(key, v.Bool()))
		case slog.KindInt64:
			to = append(to, attribute.Int64(key, v.Int64()))
		case slog.KindUint64:
			to = append(to, attribute.Int64(key, int64(v.Uint64()))) // OpenTelemetry has no other whole numbers
		case slog.KindFloat64:
			to = append(to, attribute.Float64(key, v.Float64()))
		case slog.KindDuration:
			to = append(to, attribute.Float64(key, v.Duration().Seconds()))
		case slog.KindTime:
			to = append(to, attribute.String(key, v.Time().UTC().Format(time.RFC3339Nano)))
		case slog.KindGroup:
			inner := prefix
			if a.Key != "" {
				inner = key + "."
			}
			to = appendAttributes(to, inner, v.Group())
		default:
			to = append(to, attribute.String(key, shortText(v.String())))
		}
	}
	return to
}

// shortText cuts a text that is too long.
func shortText(s string) string {
	if len(s) <= maxText {
		return s
	}
	cut := maxText
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
