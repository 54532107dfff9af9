package dracheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/stats"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/deviceplugin/check"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/internal/await"
)

// Config says which driver to check, and with what.
type Config struct {
	// Socket is the path of the driver's socket in the plugin registry; Find looks for one.
	Socket string
	// Command starts the driver of that name through a shell, in place of Socket. {dir} in it stands
	// for the directory of plugins' data, {registry} for the plugin registry, {root} for the
	// kubelet's root directory, which has both.
	Command, Driver string
	// Output gets what Command writes. Optional.
	Output io.Writer
	// Claims are allocated to the driver, and no pod uses them. Without any the checks of claims
	// are not made.
	Claims []dra.Claim
	// Slices are the driver's; nil: answers are not compared with them.
	Slices []resourcev1.ResourceSlice
	// CDI has the directories of CDI files; nil: the runtimes' own.
	CDI []string
	// Patience is the driver's deadline for everything; the default is 10 s.
	Patience time.Duration
	// Only names checks or groups: these are made, and what they need. Empty: all.
	Only []string
	// OnResult gets each result as it comes. Optional.
	OnResult func(check.Result)
}

// Find returns the socket of a driver in a plugin registry by the driver's name; "": of any.
func Find(ctx context.Context, registry, driver string) (path string, err error) {
	var others []string
	err = filepath.WalkDir(registry, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSocket == 0 || path != "" {
			return err
		}
		found, err := watcher.Ask(ctx, at, time.Second, nil)
		switch {
		case err != nil || found.Type != registerapi.DRAPlugin: // other plugins may be dead
		case driver == "" || found.Name == driver:
			path = at
		default:
			others = append(others, found.Name)
		}
		return nil
	})
	if err == nil && path == "" {
		err = fmt.Errorf("no plugin in %s says that it is DRA driver %s: name its socket there",
			registry, driver)
		if len(others) > 0 {
			err = fmt.Errorf("no plugin in %s says that it is DRA driver %s, but there is %s: name that "+
				"with --dra, or have the driver register under the other name", registry, driver,
				devicemanager.Few(others))
		}
	}
	return path, err
}

// bench holds the driver and what was found out about it.
type bench struct {
	cfg    Config
	own    *own // nil: the driver runs already
	plugin watcher.Plugin
	node   *node
	health chan []dra.DeviceHealth // the first messages
	said   *check.Transcript
	deaths deaths
	lost   error // why the driver cannot be had back; nil: it can
	// spoilt: a check has failed, and the driver's state says nothing about later checks.
	spoilt bool
	// answers has what the driver answered to the first Prepare.
	answers map[types.UID]dra.Answer
}

// node is the side of the agent: what calls the driver.
type node struct {
	*dra.Drivers
	stop func()
}

// connect begins the side of the agent anew, as a restarted one does.
func (b *bench) connect(ctx context.Context) error {
	b.hangUp()
	changed := make(chan struct{}, 1)
	drivers, err := dra.New(dra.Config{
		Deadlines: dra.Deadlines{Call: b.cfg.Patience, Dial: b.cfg.Patience},
		Heard:     b.heard,
		Changed:   func() { await.Wake(changed) },
		Health: func(_ string, devices []dra.DeviceHealth) {
			select {
			case b.health <- devices:
			default:
			}
		},
	})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	group.Go(func() { _ = drivers.Run(running) }) // its only end is that of its context
	b.node = &node{drivers, func() {
		stop()
		group.Wait()
	}}
	if _, err := drivers.Handler()(ctx, b.plugin); err != nil {
		return err
	}
	patience, cancel := context.WithTimeout(ctx, b.cfg.Patience)
	defer cancel()
	for !drivers.Usable(b.plugin.Name) {
		if !await.On(patience, changed) {
			return cmp.Or(ctx.Err(), fmt.Errorf("it does not serve %s within %s", b.plugin.Endpoint,
				b.cfg.Patience))
		}
	}
	return nil
}

func (b *bench) hangUp() {
	if b.node != nil {
		b.node.stop()
	}
	b.node = nil
}

// heard returns what writes the checks' calls to a socket into the transcript.
func (b *bench) heard(string) stats.Handler { return b.said.Handler("check", "driver") }

// Run makes all checks. The error says that the driver could not be checked.
func Run(ctx context.Context, cfg Config) (report check.Report, err error) {
	cfg.Patience = cmp.Or(cfg.Patience, 10*time.Second)
	cfg.Output = cmp.Or[io.Writer](cfg.Output, io.Discard)
	if cfg.OnResult == nil {
		cfg.OnResult = func(check.Result) {}
	}
	checks, err := selected(cfg.Only)
	if err != nil {
		return report, err
	}
	ctx = klog.NewContext(ctx, klog.Logger{}) // what the agent's side would log is in the results
	b := &bench{cfg: cfg, deaths: deaths{in: map[string]string{}}, health: make(chan []dra.DeviceHealth, 1), said: check.NewTranscript()}
	report = check.Report{Kind: "DRA driver", Began: time.Now()}
	defer func() { report.Transcript = b.said.Lines() }()
	defer b.hangUp()
	if cfg.Command != "" {
		if b.own, err = begin(ctx, cfg); err != nil {
			return report, err
		}
		defer b.own.end()
		b.cfg.Socket = b.own.socket
	}
	if b.plugin, err = watcher.Ask(ctx, b.cfg.Socket, cfg.Patience, b.heard); err != nil {
		return report, fmt.Errorf("the driver on %s does not say who it is: %w", b.cfg.Socket, err)
	}
	if b.plugin.Type != registerapi.DRAPlugin {
		return report, fmt.Errorf("the plugin on %s is of type %q, not %s: leave out --dra for a "+
			"device plugin", b.cfg.Socket, b.plugin.Type, registerapi.DRAPlugin)
	}
	report.Resource, report.Endpoint = b.plugin.Name, b.plugin.Endpoint
	report.Resources = []string{b.plugin.Name}
	report.Results = b.performAll(ctx, checks)
	report.Seconds = time.Since(report.Began).Seconds()
	return report, ctx.Err()
}

// performAll makes the checks of the table.
func (b *bench) performAll(ctx context.Context, checks []entry) (out []check.Result) {
	var bad []string
	for _, c := range checks {
		if ctx.Err() != nil {
			break
		}
		began := time.Now()
		r := c.Result
		r.Resource = b.plugin.Name
		r.Verdict, r.Happened = check.Skipped, c.hinder(b, bad)
		if r.Happened == "" {
			if err := b.ready(ctx); err != nil {
				r.Happened = err.Error()
			}
		}
		if r.Happened == "" {
			b.said.Note("--- check " + r.Name)
			r.Verdict, r.Happened = verdict(c.run(ctx, b))
			b.untimely(ctx, c, &r)
		}
		b.spoilt = b.spoilt || r.Verdict == check.Failed
		if r.Verdict == check.Failed {
			bad = append(bad, r.Name)
		}
		r.Seconds = time.Since(began).Seconds()
		out = append(out, r)
		b.cfg.OnResult(r)
	}
	return out
}

// warning is an error that is none: what works in the field.
type warning struct{ error }

// skip says why a check was not made after all.
type skip struct{ error }

func verdict(err error) (check.Verdict, string) {
	switch {
	case err == nil:
		return check.Passed, "it did"
	case errors.As(err, new(warning)):
		return check.Warning, err.Error()
	case errors.As(err, new(skip)):
		return check.Skipped, err.Error()
	}
	return check.Failed, err.Error()
}

// entry is a check of the table.
type entry struct {
	check.Result // its texts
	// needs lists checks whose failure makes this one meaningless.
	needs []string
	// claims: it needs one. starts: it needs the command that starts the driver.
	claims, starts bool
	run            func(context.Context, *bench) error
}

func (e entry) hinder(b *bench, bad []string) string {
	for _, name := range e.needs {
		if slices.Contains(bad, name) {
			return "not made, since " + name + " failed"
		}
	}
	if e.claims && len(b.cfg.Claims) == 0 {
		return "nobody named a claim that is allocated to the driver (--claim)"
	}
	if e.starts && b.own == nil {
		return "nobody gave the command that starts the driver (--exec)"
	}
	return ""
}
