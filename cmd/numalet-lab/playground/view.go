package playground

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent"
	"github.com/numalet/numalet/agent/placement/assigned"
	nodedevices "github.com/numalet/numalet/agent/placement/devices"
	"github.com/numalet/numalet/cmd/internal/ask"
	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/terminal"
)

// refresh is the interval at which the views look at the agent.
const refresh = 200 * time.Millisecond

// settleTimeout bounds how long a Once run waits.
const settleTimeout = 60 * time.Second

// How long nothing must have changed before the pods count as settled: as long as the longest pause
// between two earlier changes, within these bounds. A busy machine takes seconds for what others do
// at once, and real containers take longer than simulated ones.
const (
	minQuiet           = time.Second
	minQuietContainerd = 3 * time.Second
	maxQuiet           = 10 * time.Second
)

// viewer shows what happens to the pods.
type viewer struct {
	opts     Options
	agent    *agent.Agent
	headline string
	hints    []hint
	settled  func(ctx context.Context) bool
	calls    *calls // of an author's plugin or driver; nil: there is none
	server   string // URL of the agent's read-only port
	logs     string // the folder of the pods' logs
}

// show runs until ctx ends, the user quits or the reader goes away; with Once, until the pods have
// settled.
func (v viewer) show(ctx context.Context) error {
	switch {
	case v.opts.Once:
		return v.once(ctx)
	case terminal.Width(v.opts.Out) > 0:
		return v.live(ctx)
	default:
		return v.lines(ctx)
	}
}

// print writes the table, for people or as JSON.
func (v viewer) print(rows []assigned.Row) error {
	if !v.opts.JSON {
		width := terminal.Width(v.opts.Out)
		text := append([]string{Table(rows, width)}, faint(Notes(rows), width)...)
		_, err := lipgloss.Fprintln(v.opts.Out, strings.Join(text, "\n"))
		return err
	}
	raw, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(v.opts.Out, string(raw))
	return err
}

// faint wraps the texts at width columns and makes the lines faint.
func faint(texts []string, width int) (out []string) {
	for _, text := range texts {
		out = append(out, wrap(text, width)...)
	}
	return styled(lipgloss.NewStyle().Faint(true), out)
}

// styled gives each of the lines a style, in place.
func styled(style lipgloss.Style, lines []string) []string {
	for i, line := range lines {
		lines[i] = style.Render(line)
	}
	return lines
}

// lines prints a line whenever a container's row changes, for pipes and logs; with JSON an object
// a line. It ends when the reader is gone.
func (v viewer) lines(ctx context.Context) error {
	out := printer{v.opts.Out, v.opts.JSON}
	err := out.begin(v)
	seen := seen{text: out.rowText()}
	changes := v.agent.Changes()
	for err == nil {
		if readerGone(v.opts.Out) {
			return nil
		}
		if err = out.print(append(seen.news(v.look()), seen.heard(v.calls)...)); err != nil {
			break
		}
		if !await.For(ctx, refresh) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
		case <-time.After(idle - refresh):
		}
	}
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// viewer returns a viewer of the playground's agent.
func (p *Playground) viewer() viewer {
	return viewer{
		opts: p.opts, agent: p.agent, headline: p.headline(), hints: p.hints(), settled: p.settled,
		calls: p.calls, server: p.server, logs: p.logsDir(),
	}
}

// headline describes the machine and the runtime.
func (p *Playground) headline() string {
	m := p.agent.Machine()
	return fmt.Sprintf("numalet playground: %s, %d CPUs in %d NUMA nodes, runtime %s",
		cmp.Or(m.Name(), "this machine"), m.Online().Size(), m.NodeSet().Len(), p.opts.Runtime)
}

// hints returns what the user can do, with commands that work in the folder where numalet started.
func (p *Playground) hints() []hint {
	export := "export " + ask.Env + "=" + terminal.Quoted(p.socket())
	var hints []hint
	if p.cluster != nil {
		hints = []hint{
			{
				what: "for kubectl:",
				command: fmt.Sprintf("export KUBECONFIG=%s; alias kubectl=%s",
					terminal.Quoted(p.cluster.AdminKubeconfig()),
					terminal.Quoted(terminal.Quoted(p.cluster.kubectl))),
				brief: "export KUBECONFIG=" + terminal.Quoted(p.cluster.AdminKubeconfig()),
			},
			{
				what:    "the workloads are in " + terminal.Quoted(p.cluster.workloads) + "; what runs where:",
				command: "kubectl get pods --output wide",
			},
			{
				what:    "to give a pod that runs other CPU or memory:",
				command: "kubectl edit pod POD --subresource resize",
			},
		}
	}
	numalet := terminal.Quoted(agentProgram(os.Args[0]))
	if p.opts.GPU != "" {
		hints = append(hints, hint{what: "to have something happen to a GPU:", command: fmt.Sprintf(
			"%s-gpu ctl --mock-orders %s lose 3", numalet, terminal.Quoted(p.gpuOrders()))})
	}
	if _, err := os.Stat(p.moreDir()); err == nil {
		hints = append(hints, hint{what: "more pods to drop are in " + terminal.Quoted(p.moreDir())})
	}
	return append(hints,
		hint{
			what: fmt.Sprintf("drop a pod manifest into %s to start it, delete it to stop it; log: %s",
				terminal.Quoted(p.manifests), terminal.Quoted(p.log.Name())),
			brief: "manifests: " + terminal.Quoted(p.manifests),
		},
		hint{what: "in another terminal, to ask this agent:", command: export, brief: export},
		hint{what: "then, to know why:", command: fmt.Sprintf("%s explain POD", numalet)},
		hint{what: "what there is and happened:",
			command: fmt.Sprintf("%s status; %[1]s pods; %[1]s events; %[1]s logs POD", numalet)},
		hint{what: "the same over HTTP:", command: fmt.Sprintf("curl %s/", p.server)},
		hint{what: "to have memory run short, or the machine go down:",
			command: fmt.Sprintf("%s playground ctl memory 95%% --dir %s", numalet, terminal.Quoted(p.dir))},
		hint{what: p.opts.images()},
		hint{what: "container runtime: " + p.endpoint})
}

// images says which images there are.
func (o Options) images() string {
	if o.Runtime != Containerd {
		return "images: any name can be pulled, but for those that end in /missing; containers are simulated: " +
			"they run no program, and only cat, echo, env, ls and sleep work in them"
	}
	return fmt.Sprintf("images: %s, with sh, ls, cat, env and sleep, is there; there is no registry, and so no "+
		"other name can be pulled", containerd.WorkImage)
}

// socket is where the agent answers its administrator.
func (p *Playground) socket() string { return filepath.Join(p.dir, "root", nodedevices.Socket) }

// agentProgram returns the program that asks an agent, beside the one that was called.
func agentProgram(called string) string { return strings.TrimSuffix(called, "-lab") }

// framesPerSecond bounds how often the terminal is written to. The library looks that often whether
// there is something to write.
const framesPerSecond = 15

// live shows the table in a terminal until the user quits.
func (v viewer) live(ctx context.Context) error {
	program := tea.NewProgram(screen{tell: v.tell, headline: v.headline, hints: v.hints},
		tea.WithContext(ctx), tea.WithOutput(v.opts.Out), tea.WithoutSignalHandler(),
		tea.WithFPS(framesPerSecond))
	following, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { v.follow(following, program.Send) })
	_, err := program.Run()
	stop()
	work.Wait()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil // a signal ended the program
	}
	if errors.Is(err, syscall.EIO) {
		return nil // the terminal is gone; the signal that says so is on its way
	}
	return err
}

// once waits until the pods have settled and prints the table.
func (v viewer) once(ctx context.Context) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(settleTimeout)
	var last string
	since, quiet := time.Now(), minQuiet
	if v.opts.Runtime == Containerd {
		quiet = minQuietContainerd
	}
	for {
		select {
		case <-ctx.Done():
			return errInterrupted
		case <-deadline:
			return fmt.Errorf("the pods have not settled in %v:\n%s", settleTimeout,
				ansi.Strip(Table(v.agent.Placements(), 0)))
		case now := <-ticker.C:
			rows := v.agent.Placements()
			if text := Table(rows, 0); text != last {
				quiet = min(max(quiet, now.Sub(since)), maxQuiet)
				last, since = text, now
			}
			if v.settled(ctx) && now.Sub(since) >= quiet {
				return v.print(rows)
			}
		}
	}
}

// summary counts the pods by phase.
func summary(rows []assigned.Row) string {
	seen, count := map[string]bool{}, map[v1.PodPhase]int{}
	for _, r := range rows {
		if key := r.Namespace + "/" + r.Pod; !seen[key] {
			seen[key] = true
			count[r.State.Phase]++
		}
	}
	var parts []string
	for _, phase := range []v1.PodPhase{v1.PodRunning, v1.PodPending, v1.PodSucceeded,
		v1.PodFailed} {
		if count[phase] > 0 {
			parts = append(parts,
				fmt.Sprintf("%d %s", count[phase], strings.ToLower(string(phase))))
		}
	}
	return fmt.Sprintf("%d pods: %s", len(seen), strings.Join(parts, ", "))
}
