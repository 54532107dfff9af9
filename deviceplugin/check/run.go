package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// Run makes all checks. The error says that the plugin could not be checked: it cannot be started,
// it ends before it registers, or another device manager serves its directory.
func Run(ctx context.Context, cfg Config) (Report, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Report{}, err
	}
	ctx = klog.NewContext(ctx, klog.Logger{}) // what the device manager would log is in the report
	report, others, err := runOne(ctx, cfg)
	for n := 1; err == nil && len(others) > 0 && n < mostResources; n++ {
		next := cfg
		next.Resource, next.before = others[0], report.Resources
		var more Report
		more, others, err = runOne(ctx, next)
		report = report.and(more)
	}
	return report, err
}

// mostResources bounds the resources of a plugin that are checked.
const mostResources = 16

// runOne checks one resource of a plugin, and returns those that are not checked yet.
func runOne(ctx context.Context, cfg Config) (report Report, others []string, err error) {
	b, err := newBench(cfg)
	if err != nil {
		return Report{}, nil, err
	}
	if cfg.Dir == "" {
		defer os.RemoveAll(filepath.Dir(b.dirs.Plugins)) // ours, and holds only sockets
	}
	defer b.close()
	if err := b.begin(ctx); err != nil {
		return Report{Transcript: b.heard.rec.Lines()}, nil, err
	}
	report = b.performAll(ctx)
	return report, b.unchecked(), ctx.Err()
}

func newBench(cfg Config) (*bench, error) {
	b := &bench{
		host: host{cfg: cfg, pulse: newPulse()}, all: cfg.Resource == "" || len(cfg.before) > 0,
		deaths: deaths{in: map[string]string{}},
	}
	rec := &recorder{Transcript: NewTranscript(), pulse: b.pulse}
	b.heard = heard{rec: rec, resource: cfg.Resource, plugins: cfg.Dir}
	switch {
	case cfg.Dir != "":
		b.subject = attached{}
		b.dirs = Dirs{Plugins: cfg.Dir}
		return b, vacant(cfg.Dir)
	case cfg.Run != nil:
		b.subject = &function{run: cfg.Run, life: life{pulse: b.pulse}}
		b.can = abilities{start: true}
	default:
		b.subject = &Process{
			command: cfg.Command, output: cfg.Output, life: life{pulse: b.pulse},
		}
		b.can = abilities{start: true, kill: true}
	}
	dir, err := os.MkdirTemp("", "npc") // short, since sockets lie below it
	if err != nil {
		return nil, err
	}
	b.dirs = Dirs{
		Plugins:  filepath.Join(dir, "device-plugins"),
		Registry: filepath.Join(dir, "plugins_registry"),
	}
	b.heard.plugins = b.dirs.Plugins
	// As on a node, both exist before any plugin.
	return b, errors.Join(os.Mkdir(b.dirs.Plugins, 0o750), os.Mkdir(b.dirs.Registry, 0o750))
}

// vacant returns an error if a device manager serves the directory.
func vacant(dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("device plugin directory: %w: name the one that the plugin uses", err)
	}
	conn, err := net.Dial("unix", filepath.Join(dir, devicemanager.SocketName))
	if err != nil {
		return nil
	}
	_ = conn.Close() // nothing was sent
	return fmt.Errorf("a device manager serves %s in %s: stop the kubelet or numalet there, or "+
		"let the check start the plugin in a directory of its own", devicemanager.SocketName, dir)
}

// begin starts a device manager that is as strict as the kubelet, then the plugin, and waits for it
// to register.
func (b *bench) begin(ctx context.Context) error {
	if err := b.serveAs(true); err != nil {
		return err
	}
	if err := b.subject.Start(b.dirs); err != nil {
		return err
	}
	known := func() bool { _, known := b.heard.introduction(); return known }
	b.until(ctx, func() bool { return known() || b.ended() })
	if end := b.subject.Fate(); end != nil && !known() {
		return fmt.Errorf("the plugin was started and did not register: %s", end)
	}
	return ctx.Err()
}

// performAll makes the checks of the table.
func (b *bench) performAll(ctx context.Context) Report {
	report := Report{Began: b.heard.rec.began}
	var failures []string
	for _, g := range selected(b.cfg.Only) {
		for _, c := range g.checks {
			if ctx.Err() != nil {
				break
			}
			result := b.perform(ctx, c, failures)
			result.Group, result.Resource = g.name, b.heard.resource
			if result.Verdict == Failed {
				failures = append(failures, c.name)
			}
			if report.Devices == 0 {
				report.Devices = len(b.resource().Devices)
			}
			report.Results = append(report.Results, result)
			b.cfg.OnResult(result)
		}
	}
	who, _ := b.heard.introduction()
	report.Resource, report.Way, report.Endpoint = who.resource, who.way, who.endpoint
	report.Resources = append(report.Resources, who.resource)
	report.Seconds = time.Since(b.heard.rec.began).Seconds()
	report.Transcript = b.heard.rec.Lines()
	return report
}

// perform makes one check, or says why it cannot be made.
func (b *bench) perform(ctx context.Context, c check, failures []string) Result {
	began := time.Now()
	o := outcome{verdict: Skipped, happened: c.hinder(ctx, b, failures)}
	if o.happened == "" {
		b.heard.rec.Note("--- check " + c.name)
		o = c.run(ctx, b)
		if end := b.untimely(ctx, c, o); end != nil {
			o = b.died(c.name, end)
		}
	}
	b.spoilt = b.spoilt || o.verdict == Failed
	return Result{
		Name: c.name, Verdict: o.verdict, Did: c.did, Expected: c.expected, Happened: o.happened,
		Why: c.why, Hint: cmp.Or(o.hint, c.hint), Seconds: time.Since(began).Seconds(),
	}
}

// dying is how long a plugin may take to end after the check in which it dies.
const dying = 300 * time.Millisecond

// untimely returns how the plugin ended in a check that it should have survived; nil: it did.
func (b *bench) untimely(ctx context.Context, c check, o outcome) *Ending {
	if c.wants.start || !c.wants.plugin && (!c.mortal || o.verdict != Failed) {
		return nil
	}
	if o.verdict == Failed {
		b.pulse.until(ctx, dying, b.ended)
	}
	if end := b.subject.Fate(); end != b.deaths.blamed {
		return end
	}
	return nil
}

// died returns the outcome of a check in which the plugin ended. A plugin that ends in the same way
// again has one fault, and fails one check.
func (b *bench) died(check string, end *Ending) outcome {
	b.deaths.blamed = end
	if before := b.deaths.in[end.Kind()]; before != "" && before != check {
		return skipped("the plugin ended again as in %s", before)
	}
	b.deaths.in[end.Kind()] = check
	return failed("%s", end).advising("look for a panic or an exit in the plugin's own log: " +
		"whatever it is asked, it should answer with an error and go on")
}
