package app

import (
	"slices"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// This file converts the settings of a program to those of its services. They are pure functions; a
// test checks that every field arrives.

// brokerConfig has the settings of the connection to NATS.
func brokerConfig(c *Config) natsbroker.Config {
	return settings.Broker(settings.NATS(c.NATS), settings.Streams(c.Streams))
}

// orchestratorConfig has the settings of the orchestrator.
func orchestratorConfig(c *Config) orchestrator.Config {
	o := c.Orchestrator
	return orchestrator.Config{
		ID: o.ID,
		Round: round.Config{Codec: c.Codec, MaxAttempts: o.MessageAttempts, FailNondeterminism: o.FailNondeterminism,
			FailUnregistered: o.FailUnregistered, CheckGoroutines: c.Command == Dev},
		Memory: orchestrator.Memory{MaxInstances: o.MaxInstances, MaxInstanceBytes: o.MaxInstanceMemory,
			MaxMessages: o.MaxMessages, MaxMessageBytes: o.MaxMessageMemory, ReplayEach: c.Command == Dev},
		Commit:           orchestrator.Commit{Timeout: o.CommitTimeout},
		Sweep:            orchestrator.Sweep{Every: o.SweepEvery, OutboxAfter: o.OutboxAfter},
		RoundConcurrency: o.RoundConcurrency, StepConcurrency: o.StepConcurrency,
		Clocks:       orchestrator.Clocks{MaxSkew: o.MaxClockSkew},
		RunawayAfter: o.RunawayAfter, ShutdownTimeout: c.ShutdownTimeout, NoDirectDelivery: o.NoDirectDelivery,
		Retention: o.Retention, KeepExecutions: o.KeepExecutions, KeepFormerFor: o.KeepFormerFor,
		LogPayloads: c.Log.Payloads, Logger: o.Logger, CodeLogger: o.CodeLogger,
	}
}

// workerConfig has the settings of the worker.
func workerConfig(c *Config) worker.Config {
	w := c.Worker
	return worker.Config{
		ID: w.ID, Tags: tagFilter(w.Tags), Slots: w.Slots, SlotsPerTag: w.SlotsPerTag,
		SlotsPerActivity: w.SlotsPerActivity, RatePerActivity: w.RatePerActivity, MaxTaskCrashes: w.MaxTaskCrashes,
		CancelGrace: w.CancelGrace, ShutdownTimeout: c.ShutdownTimeout, MaxSessions: w.MaxSessions,
		SessionIdle: w.SessionIdle, SessionLease: c.Streams.SessionLease, Codec: c.Codec,
		LogPayloads: c.Log.Payloads, Logger: w.Logger,
	}
}

// The words for tags are those of subjects: _ is for tasks without a tag, * for all.
const (
	untagged = "_"
	anyTag   = settings.AnyTag
)

// tagNames are the tags that are known from the settings; the empty one is for tasks without a tag.
func tagNames(tags []string) []string {
	names := slices.DeleteFunc(slices.Clone(tags), func(t string) bool { return t == untagged || t == anyTag })
	if len(names) == len(tags) && len(names) > 0 {
		return names
	}
	return append([]string{""}, names...)
}

// tagFilter selects the tasks that a worker takes.
func tagFilter(tags []string) worker.TagFilter {
	names := tagNames(tags)
	switch {
	case slices.Contains(tags, anyTag):
		return worker.Any()
	case len(names) == 1 && names[0] == "":
		return worker.DefaultOnly()
	case names[0] == "":
		return worker.DefaultAnd(names[1:]...)
	}
	return worker.Tags(names...)
}
