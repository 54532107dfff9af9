package allocation

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// Container lists the holdings of one container: at most one per kind, none empty, in the order of
// the kinds. It is never written to; With returns a changed copy.
type Container []Holding

// With returns the container with this holding instead of its present one of that kind.
func (c Container) With(h Holding) Container { return replaced(c, h) }

func (c *Container) set(h Holding) { *c = c.With(h) }

// IsEmpty reports whether the container holds nothing.
func (c Container) IsEmpty() bool { return len(c) == 0 }

// parts describes what the container holds, resource by resource.
func (c Container) parts() (out []string) {
	for _, h := range c {
		out = append(out, h.parts()...)
	}
	return out
}

// WithoutAnswers returns the containers with their holdings as intent: plugins have to answer
// again.
func WithoutAnswers(containers map[string]Container) map[string]Container {
	out := make(map[string]Container, len(containers))
	for name, c := range containers {
		for _, h := range c {
			if a, ok := h.(answered); ok {
				c = c.With(a.intent())
			}
		}
		out[name] = c
	}
	return out
}

// Incomplete reports whether a container of the pod cannot be created: an answer is missing, or
// the container needs one and holds nothing at all. An init container without holdings may have
// finished, so it does not count.
func (p Pod) Incomplete(pod *v1.Pod) bool {
	for c, order := range podspec.Containers(pod) {
		held := p.Containers[c.Name]
		if held.IsEmpty() && order != podspec.Init && needsAnswers(pod, c) {
			return true
		}
		if slices.ContainsFunc(held, func(h Holding) bool {
			a, ok := h.(answered)
			return ok && !a.ready()
		}) {
			return true
		}
	}
	return false
}

func needsAnswers(pod *v1.Pod, c *v1.Container) bool {
	return slices.ContainsFunc(kinds, func(k *kind) bool { return k.needs != nil && k.needs(pod, c) })
}

// IsEmpty reports whether the pod holds nothing.
func (p Pod) IsEmpty() bool {
	for _, c := range p.Containers {
		if !c.IsEmpty() {
			return false
		}
	}
	return true
}

// Holdings sums the holdings of pods: at most one total per kind, none empty, in the order of the
// kinds. It is never written to.
type Holdings []total

// HoldingsOf returns what the pods hold together.
func HoldingsOf(pods ...Pod) (out Holdings) {
	for _, k := range kinds {
		if t := k.sum(pods); !t.empty() {
			out = append(out, t)
		}
	}
	return out
}

// With returns Holdings with this total instead of its present one of that kind.
func (t Holdings) With(one total) Holdings { return replaced(t, one) }

func (t Holdings) equal(o Holdings) bool {
	return len(t) == len(o) && !slices.ContainsFunc(t, func(one total) bool { return !one.equal(o) })
}

// Overlaps reports whether both cannot be held at the same time. Memory on a common node overlaps
// even if there is enough for both.
func (t Holdings) Overlaps(other Holdings) bool {
	return slices.ContainsFunc(t, func(one total) bool { return one.overlaps(other) })
}

// sum counts what pods hold, by kind in the order of the kinds; nil: nothing. It is an immutable
// value.
type sum []counts

// change returns the sum after one pod's holdings changed from had to has.
func (s sum) change(had, has Holdings) sum {
	var out sum
	for i, k := range kinds {
		before, after := indexOf(had, k.name), indexOf(has, k.name)
		if before < 0 && after < 0 || before >= 0 && had[before].equal(has) {
			continue
		}
		if out == nil {
			out = s.copied()
		}
		out[i] = out[i].change(had, has)
	}
	if out == nil {
		return s
	}
	return out
}

func (s sum) copied() sum {
	if s != nil {
		return slices.Clone(s)
	}
	for _, k := range kinds {
		s = append(s, k.none)
	}
	return s
}

// taken returns everything that is counted, but only the devices of the given resources.
func (s sum) taken(resources []string) (out Holdings) {
	for _, c := range s {
		if t := c.taken(resources); !t.empty() {
			out = append(out, t)
		}
	}
	return out
}

// conflict describes what own has that another pod has and only one can have; "": nothing.
func (s sum) conflict(own Holdings) string {
	var out []string
	for _, c := range s {
		if text := c.conflict(own); text != "" {
			out = append(out, text)
		}
	}
	return strings.Join(out, ", ")
}
