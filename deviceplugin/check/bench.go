package check

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// bench has what checks work on: a plugin, what serves it, and what was found so far.
type bench struct {
	host
	subject subject
	can     abilities // what the bench can do to it
	// early is the device manager's text if the plugin could not be reached while it registered.
	early string
	all   bool // every resource of the plugin is to be checked
	idle  idle
	// before lists the devices that were healthy before a lever was pulled.
	before []string
	deaths deaths
	direct *direct // nil: there is none
	// spoilt: a check has failed, and the plugin's state says nothing about later checks.
	spoilt bool
}

// deaths record when the plugin ended by itself.
type deaths struct {
	// blamed is the last one that a check reported; others came between checks.
	blamed *Ending
	others []*Ending
	// in names the check in which the plugin first ended in that way.
	in map[string]string
}

// idle holds what was heard of the plugin while it was not asked for anything.
type idle struct {
	registrations int
	// states are the states of each device, in their order, without repetitions.
	states map[string][]string
}

// unchecked returns the plugin's resources that are not checked yet, without the one that is.
func (b *bench) unchecked() (out []string) {
	if !b.all {
		return nil
	}
	for _, name := range b.heard.rec.resources() {
		if name != b.heard.resource && !slices.Contains(b.cfg.before, name) {
			out = append(out, name)
		}
	}
	return out
}

// ended reports whether the plugin ended by itself.
func (b *bench) ended() bool { return b.subject.Fate() != nil }

// ready makes sure that the plugin runs and is connected, with a restart if need be.
func (b *bench) ready(ctx context.Context) error {
	if !b.ended() && b.connected() && !b.spoilt {
		return nil
	}
	if end := b.subject.Fate(); end != nil && end != b.deaths.blamed {
		b.deaths.others, b.deaths.blamed = append(b.deaths.others, end), end
	}
	b.spoilt = false
	if b.can.start {
		b.hangUp()
		b.subject.Kill()
		if err := b.serve(); err != nil {
			return err
		}
		if err := b.subject.Start(b.dirs); err != nil {
			return err
		}
	}
	if b.until(ctx, func() bool { return b.ended() || b.connected() }) && !b.ended() {
		return nil
	}
	if end := b.subject.Fate(); end != nil {
		return fmt.Errorf("the plugin does not come back: %s", end)
	}
	return fmt.Errorf("the plugin is not registered any more: %s", b.resource().Problem)
}

// plugin returns the checks' own connection to the plugin.
func (b *bench) plugin() *direct {
	who, _ := b.heard.introduction()
	if b.direct == nil || b.direct.to != who.endpoint {
		b.hangUp()
		b.direct = dial(who.endpoint, b.cfg.Patience, b.heard.rec)
	}
	return b.direct
}

// hangUp closes that connection, if there is one.
func (b *bench) hangUp() {
	b.direct.hangUp()
	b.direct = nil
}

// close ends everything.
func (b *bench) close() {
	b.hangUp()
	b.subject.Stop(time.Second)
	b.subject.Kill()
	b.stopServing()
}
