package check

import (
	"context"
	"fmt"
	"slices"
)

// check is one entry of the table.
type check struct {
	name string
	// needs lists checks whose failure makes this one meaningless.
	needs []string
	wants wants
	// mortal: if the check fails and the plugin ends, its end is the reason.
	mortal bool
	words
	run func(ctx context.Context, b *bench) outcome
}

// words are the texts of a check that do not depend on the outcome.
type words struct {
	did, expected, why, hint string
}

// wants are the preconditions of a check.
type wants struct {
	// plugin: it is registered and lists devices; devices: so many of them are healthy.
	plugin  bool
	devices int
	// start: the plugin is ours to start and stop; kill: and to kill.
	start, kill bool
	lever       Lever
}

// group holds checks of one kind.
type group struct {
	name   string
	checks []check
}

// table returns all checks in the order in which they run.
func table() []group {
	return []group{
		{"registration", registrationChecks()},
		{"list", listChecks()},
		{"allocation", allocationChecks()},
		{"preference", preferenceChecks()},
		{"start", startChecks()},
		{"lifecycle", lifecycleChecks()},
		{"changes", changeChecks()},
		{"agent restarts", restartChecks()},
		{"scale", scaleChecks()},
		{"end", endChecks()},
	}
}

// outcome says what happened in a check.
type outcome struct {
	verdict  Verdict
	happened string
	// hint replaces the check's, unless it is empty.
	hint string
}

func passed(format string, args ...any) outcome {
	return outcome{verdict: Passed, happened: fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) outcome {
	return outcome{verdict: Failed, happened: fmt.Sprintf(format, args...)}
}

func warned(format string, args ...any) outcome {
	return outcome{verdict: Warning, happened: fmt.Sprintf(format, args...)}
}

func skipped(format string, args ...any) outcome {
	return outcome{verdict: Skipped, happened: fmt.Sprintf(format, args...)}
}

// advising returns the outcome with its own hint.
func (o outcome) advising(hint string) outcome {
	o.hint = hint
	return o
}

// hinder says why a check cannot be made; empty: it can.
func (c check) hinder(ctx context.Context, b *bench, failures []string) string {
	for _, name := range c.needs {
		if slices.Contains(failures, name) {
			return "not made, since " + name + " failed"
		}
	}
	switch {
	case c.wants.start && !b.can.start:
		return "the plugin was started by somebody else, and is not ours to stop"
	case c.wants.kill && !b.can.kill:
		return "the plugin is in this process, and cannot be killed"
	case c.wants.lever != "" && b.cfg.Levers[c.wants.lever] == nil:
		return fmt.Sprintf("nobody gave a lever %q that brings it about", c.wants.lever)
	case c.wants.lever == Multiply && len(b.unchecked()) > 0:
		return "made with the last of the plugin's resources: the devices stay many"
	}
	if !c.wants.plugin {
		return ""
	}
	if err := b.ready(ctx); err != nil {
		return err.Error()
	}
	if n := len(b.healthy()); n < c.wants.devices {
		return fmt.Sprintf("it needs %d healthy devices, and the plugin lists %d", c.wants.devices,
			n)
	}
	return ""
}

// plus returns names and more.
func plus(names []string, more ...string) []string { return slices.Concat(names, more) }
