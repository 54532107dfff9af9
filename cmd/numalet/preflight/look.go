package preflight

import (
	"context"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/cri"
)

// patience bounds each answer of the runtime, the API server or a plugin.
const patience = 10 * time.Second

// Question is about a node.
type Question struct {
	// Load reads the agent's configuration; From says where the flags are from.
	Load func() (*config.Config, error)
	From string
	// Kubelet is the one that runs; nil: none does.
	Kubelet *Process
	// Cgroups is where the hierarchy is mounted, usually /sys/fs/cgroup.
	Cgroups string
}

// looking collects the findings about one node.
type looking struct {
	Question
	Report
	cfg     *config.Config
	cluster cluster
	// pods are those of the API server and of manifests, running those of the runtime.
	pods    []*v1.Pod
	running []cri.Pod
	listed  bool // pods has all that a source has
	reached bool // running has all that the runtime has
}

// Look answers the question. Facts that cannot be had are findings.
func Look(ctx context.Context, q Question) Report {
	l := looking{Question: q, Report: Report{CommandLine: []string{}, From: q.From}}
	if l.configuration() {
		l.runtime(ctx)
		l.cgroups(ctx)
		l.cluster = l.connect()
		l.lookAtPods(ctx)
		l.plugins(ctx)
	}
	l.versions(ctx)
	level := l.worst()
	l.Ready = level != Changes && level != Blocks
	return l.Report
}

// configuration says of each setting what becomes of it. Without a configuration nothing else can be told.
func (l *looking) configuration() (ok bool) {
	cfg, err := l.Load()
	if err != nil {
		l.add(Configuration, "command line and files", Blocks, "the agent would not start: %v", err).Advice =
			"numalet --help lists the flags"
		return false
	}
	l.cfg, l.CommandLine = cfg, append(l.CommandLine, cfg.Given()...)
	for _, s := range cfg.Settings() {
		switch s.Effect {
		case config.Same:
			l.add(Configuration, s.Name, Same, "%s", s.Note)
		case config.Better:
			l.add(Configuration, s.Name, Better, "%s", s.Note)
		case config.Partial:
			l.add(Configuration, s.Name, Note, "%s", s.Note)
		case config.WithoutEffect:
			l.add(Configuration, s.Name, WithoutEffect, "%s", s.Note)
		}
	}
	if l.Node, err = cfg.NodeName(); err != nil {
		l.add(Configuration, "node name", Blocks, "%v", err)
	}
	return true
}

// Load reads the configuration of a command line. It says nothing of deprecated flags: a kubelet has them.
func Load(args []string) (*config.Config, error) {
	set := pflag.NewFlagSet("numalet", pflag.ContinueOnError)
	set.Usage = func() {}
	flags := config.AddFlags(set)
	set.VisitAll(func(f *pflag.Flag) { f.Deprecated = "" })
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	return config.Load(set, flags)
}
