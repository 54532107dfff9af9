package source

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/klog/v2"
)

// Problems holds the present problems of manifests.
type Problems struct {
	mu  sync.Mutex // guards now
	now map[problemKey]Problem
}

type problemKey struct{ source, name string }

// NewProblems returns an empty Problems.
func NewProblems() *Problems { return &Problems{now: map[problemKey]Problem{}} }

// Report records a problem; one without a message is over.
func (p *Problems) Report(problem Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := problemKey{problem.Source, problem.Name}
	if problem.Message == "" {
		delete(p.now, key)
		return
	}
	p.now[key] = problem
	what := "Manifest refused"
	switch problem.Reason {
	case IgnoredField:
		what = "Manifest with a field that is ignored"
	case Absent:
		what = "No manifests"
	}
	klog.Background().Info(what, "source", problem.Source, "name", problem.Name,
		"reason", problem.Reason, "message", problem.Message)
}

// List returns the problems by source and name.
func (p *Problems) List() []Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := slices.AppendSeq(make([]Problem, 0, len(p.now)), maps.Values(p.now))
	slices.SortFunc(out, func(a, b Problem) int {
		return strings.Compare(a.Source+"\x00"+a.Name, b.Source+"\x00"+b.Name)
	})
	return out
}
