// Package bench runs the rig for the command line: it reads the machine and the workload, runs the
// policies side by side, shows the progress on stderr, and writes the report.
package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/numalet/numalet/cmd/numalet-lab/rig"
	"github.com/numalet/numalet/cmd/numalet-lab/rig/report"
	"github.com/numalet/numalet/topology/discover"
)

// Options holds the command line.
type Options struct {
	// Machine is the value of --topology-from. Site says what pods can have of that machine.
	Machine   string
	Site      rig.SiteConfig
	Policies  Policies
	Workload  Workload
	Wait      time.Duration
	Decisions string
	Report    Report
	// Parallel is the number of policies that run at the same time.
	Parallel       int
	Quiet          bool
	Stdout, Stderr io.Writer
}

// Policies names the policies to compare.
type Policies struct {
	// Words holds sets of policy words. If it is empty, all policies come from files.
	Words string
	// Configs holds configuration files of nodes as NAME=FILE, ConfigDirs drop-in directories as
	// NAME=DIR.
	Configs, ConfigDirs []string
}

// Workload says where the arriving pods come from: a mix to draw from, or a trace to read.
type Workload struct {
	Mix        string
	Draw       rig.Draw
	Trace      string
	WriteTrace string
}

// Formats lists the formats of a report. The ending of the file's name may choose one.
var Formats = []string{"text", "json", "html"}

// Report says how the result is written.
type Report struct {
	// Format is one of Formats.
	Format string
	// Out is the file to write to, or empty for stdout.
	Out      string
	NoTiming bool
	// Version is the program's version, Command the command line that makes the same report again.
	Version, Command string
}

// ErrInterrupted reports that the run was ended early and the report has what was measured until
// then.
var ErrInterrupted = errors.New("interrupted: the report has what was measured until then")

// garbagePercent lets the heap grow further than usual between two garbage collections: the heap is
// small, and nearly everything in it is short-lived.
const garbagePercent = 800

// maxPods bounds the number of pods of a stream, all of which are in memory.
const maxPods = 100_000_000

// Run does what the command line says. It writes a report only if all policies have run or, when
// ctx ends early, if any has begun; the error is then ErrInterrupted.
func Run(ctx context.Context, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	machine, err := discover.Open(o.Machine)
	if err != nil {
		return err
	}
	policies, err := o.Policies.read(machine)
	if err != nil {
		return err
	}
	o.Site.Machine = machine
	site, err := rig.NewSite(o.Site)
	if err != nil {
		return err
	}
	stream, workload, err := o.Workload.stream(site, o.Wait)
	if err != nil {
		return err
	}
	if o.Workload.WriteTrace != "" {
		if err := writeFile(o.Workload.WriteTrace, func(w io.Writer) error {
			return rig.WriteTrace(w, stream)
		}); err != nil {
			return fmt.Errorf("write trace: %w", err)
		}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(garbagePercent))
	outcomes, err := o.runAll(ctx, site, policies, stream)
	if err != nil {
		return err
	}
	report := rig.Report{
		Version: o.Report.Version, Command: o.Report.Command,
		Machine: site.Describe(cmp.Or(o.Machine, "this host")), Workload: workload,
	}
	report.Policies, report.Interrupted = complete(outcomes, workload.Pods)
	if len(report.Policies) == 0 {
		return errors.New("interrupted before the first pod was decided on")
	}
	if err := o.Report.write(o.Stdout, report); err != nil {
		return err
	}
	if report.Interrupted {
		return ErrInterrupted
	}
	return nil
}

// complete leaves out policies that have not begun, and reports whether any policy is incomplete.
func complete(outcomes []rig.Outcome, pods int) (begun []rig.Outcome, interrupted bool) {
	for _, o := range outcomes {
		interrupted = interrupted || o.Pods.Arrived < pods
	}
	begun = slices.DeleteFunc(outcomes, func(o rig.Outcome) bool { return o.Pods.Arrived == 0 })
	return begun, interrupted
}

func (o Options) check() error {
	switch {
	case o.Workload.Draw.Pods < 1 || o.Workload.Draw.Pods > maxPods:
		return fmt.Errorf("--pods %d: give a number from 1 to %d", o.Workload.Draw.Pods, maxPods)
	case o.Parallel < 1:
		return fmt.Errorf("--parallel %d: give 1 or more", o.Parallel)
	case o.Wait < 0:
		return fmt.Errorf("--wait %v: give 0 or more", o.Wait)
	case o.Workload.Draw.Load < 0 || o.Workload.Draw.Load > 100:
		return fmt.Errorf("--load %v: give a number from 0 to 100, like 0.9", o.Workload.Draw.Load)
	}
	return nil
}

// stream returns the arriving pods and their description for the report.
func (w Workload) stream(site *rig.Site, wait time.Duration) (
	rig.Stream, rig.Workload, error) {
	if w.Trace != "" {
		f, err := os.Open(w.Trace)
		if err != nil {
			return rig.Stream{}, rig.Workload{},
				fmt.Errorf("open trace: %w; make one with --write-trace", err)
		}
		defer f.Close()
		stream, err := site.ReadTrace(f)
		if err != nil {
			return stream, rig.Workload{}, fmt.Errorf("trace %s: %w", w.Trace, err)
		}
		return stream, stream.Describe("trace "+w.Trace, "", wait), nil
	}
	mix, err := rig.OpenMix(w.Mix)
	if err != nil {
		return rig.Stream{}, rig.Workload{}, err
	}
	stream, err := site.Generate(mix, w.Draw)
	if err != nil {
		return stream, rig.Workload{}, err
	}
	workload := stream.Describe(mix.Name, mix.About, wait)
	workload.Seed = &w.Draw.Seed
	return stream, workload, nil
}

// runAll runs the policies, o.Parallel at a time. The outcomes are in the order of the policies. If
// ctx ends early, they have what was measured until then.
func (o Options) runAll(ctx context.Context, site *rig.Site, policies []rig.Policy, s rig.Stream) (
	[]rig.Outcome, error) {
	outcomes := make([]rig.Outcome, len(policies))
	decisions := make([]bytes.Buffer, len(policies))
	progress := newProgress(o, policies, len(s.Arrivals))
	defer progress.end()
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(o.Parallel)
	began := time.Now()
	for i, p := range policies {
		options := rig.Options{
			Wait: o.Wait, Progress: func(n int) { progress.arrived(i, n) },
		}
		if !o.Report.NoTiming {
			options.Clock = func() time.Duration { return time.Since(began) }
		}
		if o.Decisions != "" {
			options.Follow = follow(&decisions[i], p.Name)
		}
		group.Go(func() (err error) {
			outcomes[i], err = rig.Run(running, site, p, s, options)
			if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	progress.end()
	if o.Decisions == "" {
		return outcomes, nil
	}
	err := writeFile(o.Decisions, func(w io.Writer) error {
		for i := range decisions {
			if _, err := decisions[i].WriteTo(w); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("write decisions: %w", err)
	}
	return outcomes, nil
}

// decision is one line of the --decisions file. Pod counts arrivals from 1.
type decision struct {
	Policy string        `json:"policy"`
	At     float64       `json:"at"`
	Pod    int           `json:"pod"`
	Kind   string        `json:"decision"`
	Reason string        `json:"reason,omitempty"`
	Of     string        `json:"of,omitempty"`
	Held   []rig.Holding `json:"held,omitempty"`
}

func follow(w io.Writer, policy string) func(rig.Decision) error {
	encoder := json.NewEncoder(w)
	return func(d rig.Decision) error {
		return encoder.Encode(decision{
			Policy: policy, At: d.At.Seconds(), Pod: d.Arrival + 1, Kind: d.Kind,
			Reason: d.Reason.Reason, Of: d.Reason.Of, Held: d.Held,
		})
	}
}

func (to Report) write(stdout io.Writer, r rig.Report) error {
	show := map[string]func(io.Writer, rig.Report) error{
		"text": report.WriteText, "json": writeJSON, "html": report.WriteHTML,
	}[to.Format]
	if to.Out == "" {
		return show(stdout, r)
	}
	err := writeFile(to.Out, func(w io.Writer) error { return show(w, r) })
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func writeJSON(w io.Writer, r rig.Report) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// writeFile replaces a regular file as a whole or not at all. A path that is no regular file, like
// a pipe or /dev/null, is written to in place.
func writeFile(path string, write func(io.Writer) error) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	temporary := path + ".tmp"
	f, err := os.Create(temporary)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return os.Rename(temporary, path)
}
