package source

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/internal/complaint"
)

// Problems holds the present problems of manifests.
type Problems struct {
	mu  sync.Mutex // guards now
	now map[problemKey]complaint.Problem
}

type problemKey struct{ source, name string }

// NewProblems returns an empty Problems.
func NewProblems() *Problems { return &Problems{now: map[problemKey]complaint.Problem{}} }

// Report records a problem; one without a message is over.
func (p *Problems) Report(problem complaint.Problem) {
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
	case manifest.IgnoredField:
		what = "Manifest with a field that is ignored"
	case manifest.Absent:
		what = "No manifests"
	}
	klog.Background().Info(what, "source", problem.Source, "name", problem.Name,
		"reason", problem.Reason, "message", problem.Message)
}

// List returns the problems by source and name.
func (p *Problems) List() []complaint.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := slices.AppendSeq(make([]complaint.Problem, 0, len(p.now)), maps.Values(p.now))
	slices.SortFunc(out, func(a, b complaint.Problem) int {
		return strings.Compare(a.Source+"\x00"+a.Name, b.Source+"\x00"+b.Name)
	})
	return out
}
