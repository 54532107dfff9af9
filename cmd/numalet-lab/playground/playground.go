// Package playground starts an agent and everything around it in one directory: a runtime, a
// machine, device plugins in processes of their own, example pods. Outside that directory it
// changes nothing, except, with a real containerd, what containers need, such as cgroups.
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
	"github.com/numalet/numalet/agent/placement/assigned"
	nodedevices "github.com/numalet/numalet/agent/placement/devices"
	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/complaint"
)

// Runtimes that a playground can have.
const (
	Simulated  = "sim"
	Containerd = "containerd"
)

// Options say what to start.
type Options struct {
	Runtime string
	// Machine is the value for --topology-from. If it is empty, the machine is the fixture
	// "playground", or with containerd this machine.
	Machine string
	// Tools is the folder of containerd's binaries. If it is empty, NUMALET_TOOLS names the folder, or
	// else it is where test/tools/build.sh puts the binaries.
	Tools string
	// Cluster is the folder of a control plane's servers, which test/tools/build.sh builds. The agent
	// becomes a node of that control plane. If Cluster is empty, the agent has no API server.
	Cluster string
	// Examples is a folder of manifests to use instead of ours; "none" starts without pods.
	Examples string
	// GPU names a machine of the GPU plugin. The playground then is that machine, and the plugin
	// offers its GPUs. If GPU is empty, there are no such GPUs.
	GPU string
	// DRA has the cluster hand out the GPUs by resource claim: the GPU plugin runs as a driver of
	// claims. It needs Cluster and GPU.
	DRA bool
	// Plugin is the command of an author's device plugin, Driver that of a driver of claims: it is played
	// with instead of the simulated plugins, and its calls and answers are shown. Driver needs Cluster.
	Plugin, Driver string
	// Config is a file with a KubeletConfiguration, whose settings replace the playground's.
	Config string
	// Once prints the table when all pods have settled, and ends. JSON prints the table as JSON, without
	// Once a line of JSON for each change.
	Once, JSON bool
	Out        io.Writer
}

// Playground holds everything that was started.
type Playground struct {
	ground
	// manifests is the directory the agent watches.
	manifests string
	// server is the URL of the agent's read-only port; it is empty if the port is off.
	server string
	// endpoint is the container runtime's.
	endpoint string
	agent    *agent.Agent
	plugins  []plugin
	calls    *calls   // of an author's plugin or driver; nil: there is none
	cluster  *cluster // nil if the agent has no API server
	log      *os.File
}

// ground carries the agent: a directory and a runtime.
type ground struct {
	opts Options
	dir  string
	// stops end what was started besides the agent and the plugins.
	stops []func() error
}

// errInterrupted is returned if the context ends before the pods of a Once run have settled.
var errInterrupted = errors.New("interrupted before the pods had settled")

// Run runs the playground until ctx ends, or with Once until the pods have settled, and cleans up.
func Run(ctx context.Context, opts Options) error {
	signal.Ignore(syscall.SIGPIPE) // if the reader of our output goes away, we still clean up
	p := &Playground{ground: ground{opts: opts}}
	if err := opts.check(); err != nil {
		return err
	}
	machine, err := opts.gpuMachine(ctx)
	if err != nil {
		return err
	}
	if p.dir, err = os.MkdirTemp("", "numalet-"); err != nil {
		return fmt.Errorf("make the playground's directory: %w", err)
	}
	err = p.run(ctx, machine)
	interrupted := errors.Is(err, errInterrupted)
	if interrupted && !opts.Once {
		err = nil // this is how a user ends the playground
	}
	// If something could not be stopped, the host's files may still be mounted in the directory.
	stopErr := p.stop()
	keep := err != nil && !interrupted && !errors.As(err, &refused{}) || stopErr != nil
	return errors.Join(err, stopErr, p.close(keep))
}

func (p *Playground) run(ctx context.Context, machine []byte) error {
	if err := errors.Join(p.prepare(), p.playOn(machine)); err != nil {
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

// stop ends what was started, in reverse order.
func (g *ground) stop() error {
	var errs []error
	for _, stop := range slices.Backward(g.stops) {
		errs = append(errs, stop())
	}
	return errors.Join(errs...)
}

// prepare creates the directory's layout and sends the log to a file in it.
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
	// Otherwise errors would also go to the terminal, into the middle of the table.
	return errors.Join(settings.Set("logtostderr", "false"),
		settings.Set("stderrthreshold", "FATAL"),
		// else klog writes an entry once for each severity below its own
		settings.Set("one_output", "true"))
}

// admitExamples copies the examples once the plugins have registered, so that the same pods get the
// same places in each run. If plugins are missing after a moment it copies them anyway, since it is
// worth seeing what the pods do then.
func (p *Playground) admitExamples(ctx context.Context) error {
	patience := time.After(5 * time.Second)
	for !p.connected(ctx) {
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

// connected reports whether every plugin is known: to the agent, or a driver of claims to the
// scheduler.
func (p *Playground) connected(ctx context.Context) bool {
	resources := p.agent.Inventory().Resources
	return !slices.ContainsFunc(p.plugins, func(o plugin) bool {
		if o.driver != "" {
			return !p.cluster.publishes(ctx, o.driver)
		}
		return !resources[o.resource].Connected
	})
}

// copyExamples puts the manifests where the agent takes pods from. With a cluster it puts them into
// a folder from which they are applied and where users can change them.
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
	more, err := fs.Glob(from, "more/*.yaml")
	if err != nil {
		return err
	}
	for _, name := range append(names, more...) {
		raw, err := fs.ReadFile(from, name)
		if err != nil {
			return fmt.Errorf("read example: %w", err)
		}
		at := filepath.Join(to, name)
		if p.keepsBack(name) {
			at = filepath.Join(p.moreDir(), filepath.Base(name))
			if err := os.MkdirAll(p.moreDir(), 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(at, raw, 0o644); err != nil {
			return fmt.Errorf("write example: %w", err)
		}
	}
	if p.cluster != nil {
		return p.cluster.apply(ctx)
	}
	return nil
}

// moreDir is the folder of examples that do not run from the start.
func (g *ground) moreDir() string { return filepath.Join(g.dir, "more") }

// keepsBack reports whether the example waits for the user to drop it, since with it the machine would be
// full: one in the folder more, and, on a machine with two CPUs, of which one is reserved, our pod that
// takes the other.
func (p *Playground) keepsBack(name string) bool {
	return filepath.Dir(name) == "more" || p.opts.Examples == "" && p.opts.Runtime == Containerd &&
		name == "exclusive.yaml" && p.agent.Machine().Online().Size() <= 2
}

// play runs the agent, the plugins and the view concurrently, until the view ends. If ctx ends, the
// view ends at once, and the rest goes on until the pods are gone.
func (p *Playground) play(ctx context.Context, endpoint string) error {
	p.endpoint = endpoint
	cfg, err := p.config(endpoint)
	if err != nil {
		return refused{err}
	}
	if a, is := p.opts.author(); is {
		p.calls = &calls{}
		cfg.Heard = p.calls.heard(a.what)
	}
	orders, err := p.takeOrders(cfg)
	if err != nil {
		return err
	}
	group, alive := errgroup.WithContext(context.WithoutCancel(ctx))
	alive, cancel := context.WithCancel(alive)
	defer cancel()
	if p.agent, err = agent.New(alive, cfg); err != nil {
		return refused{err}
	}
	if p.plugins, err = p.offers(); err != nil {
		return err
	}
	group.Go(func() error { return p.agent.Run(alive) })
	group.Go(func() error { return orders.run(alive) })
	for _, offer := range p.plugins {
		group.Go(func() error { return offer.run(alive, p.log) })
	}
	if a, is := p.opts.author(); is {
		group.Go(func() error { return a.run(alive, p) })
	}
	if p.cluster != nil && !p.opts.Once {
		group.Go(func() error { p.cluster.measure(alive, p.opts.Cluster, p.log); return nil })
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

// leave ends the pods before the runtime stops, if that is a real containerd, and before the
// cluster stops.
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
	return err // what is left ends with the runtime
}

// close removes the directory, or returns where the log is if something failed.
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

// settled reports whether every container runs, has ended, or waits for something that time alone
// will not change.
func (p *Playground) settled(ctx context.Context) bool {
	if !p.connected(ctx) {
		return false
	}
	rows := p.agent.Placements()
	manifests, _ := filepath.Glob(filepath.Join(p.manifests, "*.yaml"))
	refused := 0
	for _, problem := range p.agent.Problems() {
		if problem.Source != nodedevices.PluginSource && problem.Reason != manifest.IgnoredField {
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
		func(r assigned.Row) bool { return !rowSettled(r, p.plugins) })
}

func rowSettled(r assigned.Row, offers []plugin) bool {
	switch r.State.Reason {
	case "ContainerCreating", "PodInitializing":
		return false
	case claim.ReasonWaitClaim: // its controllers are on the way
		return false
	case "WaitingForDevicePlugin", claim.ReasonWaitDriver:
		return !slices.ContainsFunc(offers, func(o plugin) bool { return o.isNamedIn(r.State.Message) })
	case "":
		return r.CPUs != "" // the container runs
	}
	return true
}

// lines returns one line for each problem: of manifests, which are refused or have ignored fields,
// and of device plugins.
func lines(problems []complaint.Problem) []string {
	var out []string
	for _, problem := range problems {
		line := fmt.Sprintf("%s: %s", filepath.Base(problem.Name), problem.Message)
		switch {
		case problem.Source == nodedevices.PluginSource:
			line = fmt.Sprintf("%s: %s", problem.Name, problem.Message)
		case problem.Reason != manifest.IgnoredField:
			line = "refused: " + line
		}
		out = append(out, line)
	}
	return out
}
