package source

import (
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/strictyaml"
)

// finding is a problem and the content it was found in: the same problem in other content is
// reported again.
type finding struct {
	complaint.Problem
	content [sha256.Size]byte
}

// ledger reports each problem once, and its end. It belongs to one goroutine.
type ledger struct {
	report   func(complaint.Problem)
	reported map[string]finding // by name
}

// now takes all present problems; if several have one name, the first counts. Problems that were
// reported before and are not among them are over.
func (l *ledger) now(findings []finding) {
	next := make(map[string]finding, len(findings))
	for _, f := range findings {
		if _, ok := next[f.Name]; ok {
			continue
		}
		next[f.Name] = f
		if l.reported[f.Name] != f {
			l.report(f.Problem)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.reported)) {
		if _, ok := next[name]; !ok {
			l.report(complaint.Problem{Source: l.reported[name].Source, Name: name})
		}
	}
	l.reported = next
}

// warning returns one problem for all ignored fields; an empty one if there are none.
func (o origin) warning(name string, ignored strictyaml.Messages) complaint.Problem {
	if len(ignored.First) == 0 {
		return complaint.Problem{}
	}
	return o.problem(name, manifest.Refuse(manifest.IgnoredField, "ignored field: %s", ignored))
}
