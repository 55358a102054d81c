package app

import (
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/pkg/codec"
)

// arrivals says where each field of a Config arrives in the settings of the services. The fields in
// ownFields have no place there.
var arrivals = map[string]string{
	"NATS.URLs": "broker.URLs", "NATS.Context": "broker.Context", "NATS.Credentials": "broker.Login.Credentials",
	"NATS.NKey": "broker.Login.NKey", "NATS.User": "broker.Login.User", "NATS.Password": "broker.Login.Password",
	"NATS.Token": "broker.Login.Token", "NATS.CA": "broker.TLS.CA", "NATS.Certificate": "broker.TLS.Certificate",
	"NATS.Key": "broker.TLS.Key", "NATS.TLSFirst": "broker.TLS.TLSFirst", "NATS.Domain": "broker.Domain",
	"NATS.APIPrefix": "broker.APIPrefix", "NATS.InboxPrefix": "broker.InboxPrefix", "NATS.Timeout": "broker.Timeout",
	"NATS.Logger": "broker.Logger",

	"Streams.Prefix": "broker.Prefix", "Streams.Verify": "broker.Setup", "Streams.Partitions": "broker.Partitions",
	"Streams.Replicas": "broker.Replicas", "Streams.MaxPayload": "broker.MaxPayload",
	"Streams.InboxAckWait": "broker.InboxAckWait", "Streams.TaskAckWait": "broker.TaskAckWait",
	"Streams.InboxMaxBytes": "broker.InboxMaxBytes", "Streams.DeadLetterMaxBytes": "broker.DeadLetterMaxBytes",
	"Streams.DeadLetterTTL": "broker.DeadLetterTTL", "Streams.MemberLease": "broker.MemberLease",
	"Streams.SessionLease": "broker.SessionLease worker.SessionLease",

	"Orchestrator.ID":                 "orchestrator.ID",
	"Orchestrator.MaxInstances":       "orchestrator.Memory.MaxInstances",
	"Orchestrator.MaxMessages":        "orchestrator.Memory.MaxMessages",
	"Orchestrator.MaxInstanceMemory":  "orchestrator.Memory.MaxInstanceBytes",
	"Orchestrator.MaxMessageMemory":   "orchestrator.Memory.MaxMessageBytes",
	"Orchestrator.RoundConcurrency":   "orchestrator.RoundConcurrency",
	"Orchestrator.StepConcurrency":    "orchestrator.StepConcurrency",
	"Orchestrator.MessageAttempts":    "orchestrator.Round.MaxAttempts",
	"Orchestrator.RunawayAfter":       "orchestrator.RunawayAfter",
	"Orchestrator.NoDirectDelivery":   "orchestrator.NoDirectDelivery",
	"Orchestrator.MaxClockSkew":       "orchestrator.Clocks.MaxSkew",
	"Orchestrator.CommitTimeout":      "orchestrator.Commit.Timeout",
	"Orchestrator.SweepEvery":         "orchestrator.Sweep.Every",
	"Orchestrator.OutboxAfter":        "orchestrator.Sweep.OutboxAfter",
	"Orchestrator.Retention":          "orchestrator.Retention",
	"Orchestrator.KeepExecutions":     "orchestrator.KeepExecutions",
	"Orchestrator.KeepFormerFor":      "orchestrator.KeepFormerFor",
	"Orchestrator.FailNondeterminism": "orchestrator.Round.FailNondeterminism",
	"Orchestrator.FailUnregistered":   "orchestrator.Round.FailUnregistered",
	"Orchestrator.Logger":             "orchestrator.Logger",
	"Orchestrator.CodeLogger":         "orchestrator.CodeLogger",

	"Worker.ID": "worker.ID", "Worker.Tags": "worker.Tags", "Worker.Slots": "worker.Slots",
	"Worker.SlotsPerTag": "worker.SlotsPerTag", "Worker.SlotsPerActivity": "worker.SlotsPerActivity",
	"Worker.RatePerActivity": "worker.RatePerActivity", "Worker.MaxTaskCrashes": "worker.MaxTaskCrashes",
	"Worker.CancelGrace": "worker.CancelGrace", "Worker.MaxSessions": "worker.MaxSessions",
	"Worker.SessionIdle": "worker.SessionIdle", "Worker.Logger": "worker.Logger",

	"Codec":           "orchestrator.Round.Codec worker.Codec",
	"ShutdownTimeout": "orchestrator.ShutdownTimeout worker.ShutdownTimeout",
	"Log.Payloads":    "orchestrator.LogPayloads worker.LogPayloads",
}

// ownFields are those that package app uses by itself.
var ownFields = strings.Fields(`Program Command Try Dir NATSListen Demo Listen ConnectTimeout Stdout Stderr Log.Level
	Log.JSON Migration.Check Migration.Streams Database.URL Database.Verify JobQueues.Listen JobQueues.Access
	JobQueues.Certificate JobQueues.Key JobQueues.ClientCA JobQueues.Rate
	JobQueues.MaxJob JobQueues.MaxBody`)

// TestEveryFieldArrives changes each field of a Config and looks what changes in the settings of
// the services.
func TestEveryFieldArrives(t *testing.T) {
	var none Config
	before := services(&none)
	eachField(reflect.ValueOf(&none).Elem(), "", func(name string, _ reflect.Value) {
		if slices.Contains(ownFields, name) {
			return
		}
		var c Config
		eachField(reflect.ValueOf(&c).Elem(), "", func(other string, v reflect.Value) {
			if other == name {
				change(t, v)
			}
		})
		var got []string
		changes(before, services(&c), &got)
		if want := arrivals[name]; strings.Join(got, " ") != want {
			t.Errorf("%s arrives at %q, want %q", name, got, want)
		}
	})
}

// services are the settings of all services.
func services(c *Config) map[string]reflect.Value {
	return map[string]reflect.Value{"broker": reflect.ValueOf(brokerConfig(c)),
		"orchestrator": reflect.ValueOf(orchestratorConfig(c)), "worker": reflect.ValueOf(workerConfig(c))}
}

// eachField visits the fields of a struct, and the fields of those that are structs.
func eachField(v reflect.Value, prefix string, do func(name string, v reflect.Value)) {
	for n := range v.NumField() {
		if f := v.Type().Field(n); f.Type.Kind() == reflect.Struct {
			eachField(v.Field(n), prefix+f.Name+".", do)
		} else {
			do(prefix+f.Name, v.Field(n))
		}
	}
}

// change gives a field another value.
func change(t *testing.T, v reflect.Value) {
	t.Helper()
	for _, x := range []any{"x", 7, int64(7), true, 7 * time.Second, []string{"x"}, map[string]int{"x": 7},
		map[string]float64{"x": 7}, slog.New(slog.NewTextHandler(io.Discard, nil)), codec.JSON{}} {
		if reflect.TypeOf(x).AssignableTo(v.Type()) {
			v.Set(reflect.ValueOf(x))
			return
		}
	}
	t.Fatalf("the test has no value of type %s", v.Type())
}

// changes appends the fields that differ.
func changes(before, after map[string]reflect.Value, to *[]string) {
	for _, service := range keys(before) {
		var list func(a, b reflect.Value, at string)
		list = func(a, b reflect.Value, at string) {
			if a.Kind() == reflect.Struct && a.NumField() > 0 && a.Type().Field(0).IsExported() {
				for n := range a.NumField() {
					list(a.Field(n), b.Field(n), at+"."+a.Type().Field(n).Name)
				}
			} else if a.CanInterface() && !reflect.DeepEqual(a.Interface(), b.Interface()) {
				*to = append(*to, at)
			}
		}
		list(before[service], after[service], service)
	}
}

// TestEverySettingHasAField compares the tags of a Config with the table of settings.
func TestEverySettingHasAField(t *testing.T) {
	var tags []string
	var walk func(reflect.Type)
	walk = func(of reflect.Type) {
		for f := range of.Fields() {
			if tag := f.Tag.Get("setting"); tag != "" {
				tags = append(tags, tag)
			}
			if f.Type.Kind() == reflect.Struct {
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[Config]())
	var names []string
	for _, s := range settings.For("") {
		names = append(names, s.Name)
	}
	slices.Sort(tags)
	slices.Sort(names)
	if !slices.Equal(tags, names) {
		t.Errorf("tags %q\nsettings %q", tags, names)
	}
}
