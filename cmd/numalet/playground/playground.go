// Package playground starts an agent and everything around it in one directory: a runtime, a
// machine, device plugins in processes of their own, example pods. Nothing outside is touched
// but, with a real containerd, what containers need.
package playground

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/cri/containerd"
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
	// Cluster is the folder of a control plane's servers, which test/tools/build.sh builds: the
	// agent becomes a node of it; "": it stands alone.
	Cluster string
	// Examples is a folder of manifests instead of our own; "none" starts without pods.
	Examples string
	// GPU is a machine of the GPU plugin: the playground is that machine, and the plugin offers its
	// GPUs; "" is none.
	GPU string
	// Once prints the table when all pods have settled, and ends. JSON prints it as JSON.
	Once, JSON bool
	Out        io.Writer
}

// Playground is everything that was started.
type Playground struct {
	opts Options
	dir  string
	// manifests is the directory the agent watches.
	manifests string
	// server is the agent's read-only port as a URL; "" is off.
	server  string
	agent   *agent.Agent
	plugins []plugin
	cluster *cluster // nil: the agent stands alone
	log     *os.File
	// stops end what was started beside the agent and the plugins.
	stops []func() error
}

// errInterrupted is the end of Once when its context ends first.
var errInterrupted = errors.New("interrupted before the pods had settled")

// Run plays until ctx ends, or with Once until the pods have settled, and cleans up.
func Run(ctx context.Context, opts Options) (err error) {
	signal.Ignore(syscall.SIGPIPE) // a reader that goes does not keep us from cleaning up
	p := &Playground{opts: opts}
	if p.dir, err = os.MkdirTemp("", "numalet-"); err != nil {
		return fmt.Errorf("make the playground's directory: %w", err)
	}
	err = p.run(ctx)
	interrupted := errors.Is(err, errInterrupted)
	if interrupted && !opts.Once {
		err = nil // that is how a user ends it
	}
	// What could not be stopped may still have the host's files mounted in the directory.
	stopErr := p.stop()
	keep := err != nil && !interrupted || stopErr != nil
	return errors.Join(err, stopErr, p.close(keep))
}

func (p *Playground) run(ctx context.Context) error {
	if err := errors.Join(p.prepare(), p.prepareGPU(ctx)); err != nil {
		return err
	}
	endpoint, err := p.startRuntime(ctx)
	if err == nil && ctx.Err() == nil {
		err = p.startCluster(ctx)
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	if err != nil {
		return err
	}
	return p.play(ctx, endpoint)
}

// stop ends what was started, the last first.
func (p *Playground) stop() error {
	var errs []error
	for _, stop := range slices.Backward(p.stops) {
		errs = append(errs, stop())
	}
	return errors.Join(errs...)
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
	settings := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(settings)
	klog.SetOutput(p.log)
	// Errors would go to the terminal as well, into the middle of the table.
	return errors.Join(settings.Set("logtostderr", "false"),
		settings.Set("stderrthreshold", "FATAL"),
		settings.Set("one_output", "true")) // not once for each severity below its own
}

// admitExamples copies the examples once the plugins are there, so that the same pods get the same
// places each time. Without them it goes on after a moment: what pods do then is worth seeing too.
func (p *Playground) admitExamples(ctx context.Context) error {
	patience := time.After(5 * time.Second)
	for !p.connected() {
		select {
		case <-ctx.Done():
			return nil
		case <-patience:
			return p.copyExamples(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return p.copyExamples(ctx)
}

func (p *Playground) connected() bool {
	resources := p.agent.Inventory().Resources
	return !slices.ContainsFunc(p.plugins,
		func(o plugin) bool { return !resources[o.resource].Connected })
}

// copyExamples puts them where pods are taken from. With a cluster that is the API server, and they
// stay in a folder where they can be changed.
func (p *Playground) copyExamples(ctx context.Context) error {
	from, to := p.opts.examples(), p.manifests
	if p.cluster != nil {
		to = p.cluster.workloads
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
	}
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
		if err := os.WriteFile(filepath.Join(to, name), raw, 0o644); err != nil {
			return fmt.Errorf("write example: %w", err)
		}
	}
	if p.cluster != nil {
		return p.cluster.apply(ctx)
	}
	return nil
}

// play runs the agent, the plugins and the view side by side; the view ends it. When ctx ends the
// view does, and the rest goes on until the pods have left.
func (p *Playground) play(ctx context.Context, endpoint string) error {
	cfg, err := p.config(endpoint)
	if err != nil {
		return err
	}
	group, alive := errgroup.WithContext(context.WithoutCancel(ctx))
	alive, cancel := context.WithCancel(alive)
	defer cancel()
	if p.agent, err = agent.New(alive, cfg); err != nil {
		return err
	}
	if p.plugins, err = p.offers(); err != nil {
		return err
	}
	group.Go(func() error { return p.agent.Run(alive) })
	for _, offer := range p.plugins {
		group.Go(func() error { return offer.run(alive, p.log) })
	}
	group.Go(func() error {
		defer cancel()
		shown, hide := context.WithCancel(alive)
		defer context.AfterFunc(ctx, hide)()
		defer hide()
		return errors.Join(p.admitExamples(shown), p.viewer().show(shown), p.leave(alive))
	})
	return group.Wait()
}

// leave has the pods end before the runtime does, where that is a real one, and before the cluster
// does.
func (p *Playground) leave(ctx context.Context) error {
	if p.opts.Runtime != Containerd && p.cluster == nil {
		return nil
	}
	names, err := filepath.Glob(filepath.Join(p.manifests, "*"))
	for _, name := range names {
		err = errors.Join(err, os.RemoveAll(name))
	}
	if p.cluster != nil {
		err = errors.Join(err, p.cluster.clear(ctx))
	}
	deadline := time.Now().Add(5 * time.Second)
	for len(p.agent.Pods()) > 0 && time.Now().Before(deadline) && ctx.Err() == nil {
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
	if err := containerd.UnmountBelow(p.dir); err != nil { // volumes of pods that had not ended
		return err
	}
	return os.RemoveAll(p.dir)
}

// settled reports whether every container runs, has ended, or waits for a reason that time alone
// will not change.
func (p *Playground) settled(ctx context.Context) bool {
	if !p.connected() {
		return false
	}
	rows := p.agent.Placements()
	manifests, _ := filepath.Glob(filepath.Join(p.manifests, "*.yaml"))
	refused := 0
	for _, problem := range p.agent.Problems() {
		if problem.Source != agent.PluginSource && problem.Reason != source.IgnoredField {
			refused++
		}
	}
	if len(p.agent.Pods())+refused < len(manifests) {
		return false
	}
	if p.cluster != nil && p.opts.examples() != nil && !p.cluster.placed(ctx) {
		return false
	}
	return !slices.ContainsFunc(rows,
		func(r placement.Row) bool { return !rowSettled(r, p.plugins) })
}

func rowSettled(r placement.Row, offers []plugin) bool {
	switch r.State.Reason {
	case "ContainerCreating", "PodInitializing":
		return false
	case "WaitingForDevicePlugin":
		return !slices.ContainsFunc(offers, func(o plugin) bool { return o.isNamedIn(r.State.Message) })
	case "":
		return r.CPUs != "" // it runs
	}
	return true
}

// lines are what is wrong, a line each: with manifests, which are refused or have fields that are
// ignored, and with device plugins.
func lines(problems []source.Problem) []string {
	var out []string
	for _, problem := range problems {
		line := fmt.Sprintf("%s: %s", filepath.Base(problem.Name), problem.Message)
		switch {
		case problem.Source == agent.PluginSource:
			line = fmt.Sprintf("%s: %s", problem.Name, problem.Message)
		case problem.Reason != source.IgnoredField:
			line = "refused: " + line
		}
		out = append(out, line)
	}
	return out
}
