// Package playground starts an agent and everything around it in one directory: a runtime, a
// machine, device plugins in processes of their own, example pods. Nothing outside is touched
// but, with a real containerd, what containers need.
package playground

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/source"
)

// Runtimes that a playground can have.
const (
	Simulated  = "sim"
	Containerd = "containerd"
)

// Options say what to play with.
type Options struct {
	Runtime string
	// Machine is what --topology-from takes; "" is the fixture "playground", or with containerd
	// this machine.
	Machine string
	// Tools is the folder of containerd's binaries; "" looks where test/tools/build.sh puts them.
	Tools string
	// Examples is a folder of manifests instead of our own; "none" starts without pods.
	Examples string
	// Once prints the table when all pods have settled, and ends. JSON prints it as JSON.
	Once, JSON bool
	Out        io.Writer
}

// settleTimeout bounds how long Once waits.
const settleTimeout = 60 * time.Second

// quiet is how long nothing may have changed for the pods to count as settled.
const quiet = time.Second

// Playground is everything that was started.
type Playground struct {
	opts Options
	dir  string
	// manifests is the directory the agent watches.
	manifests string
	agent     *agent.Agent
	plugins   []plugin
	log       *os.File
}

// Run plays until ctx ends, or with Once until the pods have settled, and cleans up.
func Run(ctx context.Context, opts Options) (err error) {
	p := &Playground{opts: opts}
	if p.dir, err = os.MkdirTemp("", "numalet-"); err != nil {
		return fmt.Errorf("make the playground's directory: %w", err)
	}
	defer func() {
		err = errors.Join(err, p.close(err != nil))
	}()
	if err := p.prepare(); err != nil {
		return err
	}
	stopRuntime, endpoint, err := p.startRuntime(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopRuntime()) }()
	return p.play(ctx, endpoint)
}

// prepare lays out the directory and sends the log to a file in it.
func (p *Playground) prepare() (err error) {
	p.manifests = filepath.Join(p.dir, "manifests")
	if err := os.Mkdir(p.manifests, 0o755); err != nil {
		return err
	}
	if p.log, err = os.Create(filepath.Join(p.dir, "numalet.log")); err != nil {
		return err
	}
	klog.LogToStderr(false)
	klog.SetOutput(p.log)
	return nil
}

// admitExamples copies the examples once the plugins are there, so that the same pods get the same
// places each time. Without them it goes on after a moment: what pods do then is worth seeing too.
func (p *Playground) admitExamples(ctx context.Context) error {
	patience := time.NewTimer(5 * time.Second)
	defer patience.Stop()
	for !p.connected() {
		select {
		case <-ctx.Done():
			return nil
		case <-patience.C:
			return p.copyExamples()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return p.copyExamples()
}

func (p *Playground) connected() bool {
	resources := p.agent.Inventory().Resources
	return !slices.ContainsFunc(p.plugins, func(o plugin) bool { return !resources[o.resource].Connected })
}

func (p *Playground) copyExamples() error {
	from := p.examples()
	if from == nil {
		return nil
	}
	names, err := fs.Glob(from, "*.yaml")
	if err != nil {
		return err
	}
	for _, name := range names {
		raw, err := fs.ReadFile(from, name)
		if err != nil {
			return fmt.Errorf("read example: %w", err)
		}
		if err := os.WriteFile(filepath.Join(p.manifests, name), raw, 0o644); err != nil {
			return fmt.Errorf("write example: %w", err)
		}
	}
	return nil
}

// play runs the agent, the plugins and the view side by side; the view ends it.
func (p *Playground) play(ctx context.Context, endpoint string) error {
	cfg, err := p.config(endpoint)
	if err != nil {
		return err
	}
	if p.agent, err = agent.New(ctx, cfg); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group.Go(func() error { return p.agent.Run(ctx) })
	if p.plugins, err = p.offers(); err != nil {
		return err
	}
	for _, offer := range p.plugins {
		group.Go(func() error { return offer.run(ctx, p.log) })
	}
	group.Go(func() error {
		defer cancel()
		return errors.Join(p.admitExamples(ctx), p.view(ctx), p.leave())
	})
	return group.Wait()
}

func (p *Playground) view(ctx context.Context) error {
	switch {
	case p.opts.Once:
		return p.once(ctx)
	case isTerminal(p.opts.Out):
		return p.live(ctx)
	default:
		return p.lines(ctx)
	}
}

// leave has the pods end before the runtime does, where that is a real one.
func (p *Playground) leave() error {
	if p.opts.Runtime != Containerd {
		return nil
	}
	names, err := filepath.Glob(filepath.Join(p.manifests, "*"))
	for _, name := range names {
		err = errors.Join(err, os.RemoveAll(name))
	}
	deadline := time.Now().Add(5 * time.Second)
	for len(p.agent.Pods()) > 0 && time.Now().Before(deadline) {
		time.Sleep(50 * time.Millisecond)
	}
	return err // what is still there is ended with the runtime
}

// close removes the directory, or says where the log is when something went wrong.
func (p *Playground) close(failed bool) error {
	if p.log != nil {
		klog.Flush()
		klog.SetOutput(io.Discard)
		p.log.Close()
	}
	if failed {
		return fmt.Errorf("the log and all files are in %s", p.dir)
	}
	return os.RemoveAll(p.dir)
}

// settled tells whether every container runs, has ended, or waits for a reason that time alone
// will not change.
func (p *Playground) settled() bool {
	if !p.connected() {
		return false
	}
	rows := p.agent.Placements()
	manifests, _ := filepath.Glob(filepath.Join(p.manifests, "*.yaml"))
	if len(p.agent.Pods())+len(p.agent.Problems()) < len(manifests) {
		return false
	}
	return !slices.ContainsFunc(rows, func(r placement.Row) bool { return !rowSettled(r, p.plugins) })
}

func rowSettled(r placement.Row, offers []plugin) bool {
	switch r.Reason {
	case "ContainerCreating", "PodInitializing":
		return false
	case "WaitingForDevicePlugin":
		return !slices.ContainsFunc(offers, func(o plugin) bool { return o.isNamedIn(r.Message) })
	case "":
		return r.CPUs != "" // it runs
	}
	return true
}

// once waits until the pods have settled and prints the table.
func (p *Playground) once(ctx context.Context) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(settleTimeout)
	var last string
	since := time.Now()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return fmt.Errorf("the pods have not settled in %v:\n%s", settleTimeout,
				Table(p.agent.Placements(), 0))
		case now := <-ticker.C:
			rows := p.agent.Placements()
			if text := Table(rows, 0); text != last || !p.settled() {
				last, since = text, now
				continue
			}
			if now.Sub(since) >= quiet {
				return p.print(rows)
			}
		}
	}
}

// problems are the manifests that were refused, a line each.
func lines(problems []source.Problem) []string {
	var out []string
	for _, problem := range problems {
		out = append(out, fmt.Sprintf("%s: %s", filepath.Base(problem.Name), problem.Message))
	}
	return out
}
