package allocation

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// Container is what one container holds: at most one Holding of each kind, none of them empty, in the
// order of the kinds. It is never written to: With makes another one.
type Container []Holding

// With is the container with that holding in place of the one of its kind.
func (c Container) With(h Holding) Container { return replaced(c, h) }

func (c *Container) set(h Holding) { *c = c.With(h) }

// IsEmpty reports whether the container holds nothing.
func (c Container) IsEmpty() bool { return len(c) == 0 }

// parts says for people what the container holds, resource by resource.
func (c Container) parts() (out []string) {
	for _, h := range c {
		out = append(out, h.parts()...)
	}
	return out
}

// WithoutAnswers returns the containers with their holdings as intent: plugins have to answer again.
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

// Incomplete reports whether a container of the pod could not be created with what p has: an answer
// is missing, or the container needs some and has nothing at all. Init containers that are missing
// are left out: they may have finished.
func (p Pod) Incomplete(pod *v1.Pod) bool {
	for c, order := range podspec.Containers(pod) {
		held := p.Containers[c.Name]
		if held.IsEmpty() && order != podspec.Init && needsAnswers(c) {
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

func needsAnswers(c *v1.Container) bool {
	return slices.ContainsFunc(kinds, func(k *kind) bool { return k.needs != nil && k.needs(c) })
}

// IsEmpty reports whether the pod holds nothing, so that there is nothing to remember.
func (p Pod) IsEmpty() bool {
	for _, c := range p.Containers {
		if !c.IsEmpty() {
			return false
		}
	}
	return true
}

// Taken is what pods hold together: at most one tally of each kind, none of them empty, in the order
// of the kinds. It is never written to.
type Taken []tally

// TakenBy sums up what the pods hold.
func TakenBy(pods ...Pod) (out Taken) {
	for _, k := range kinds {
		if t := k.sum(pods); !t.empty() {
			out = append(out, t)
		}
	}
	return out
}

// With is Taken with that tally in place of the one of its kind.
func (t Taken) With(one tally) Taken { return replaced(t, one) }

func (t Taken) equal(o Taken) bool {
	return len(t) == len(o) && !slices.ContainsFunc(t, func(one tally) bool { return !one.equal(o) })
}

// Overlaps reports whether both cannot be had at once. Of memory on a common node it says so although
// there may be enough for both.
func (t Taken) Overlaps(other Taken) bool {
	return slices.ContainsFunc(t, func(one tally) bool { return one.overlaps(other) })
}

// sum is what many pods have, and how many have it: by kind, in their order; nil: nobody has
// anything. Nothing in it is written to.
type sum []counts

// change is the sum without what one pod had and with what it has.
func (s sum) change(had, has Taken) sum {
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

// taken lists the sum, of devices those of the given resources.
func (s sum) taken(resources []string) (out Taken) {
	for _, c := range s {
		if t := c.taken(resources); !t.empty() {
			out = append(out, t)
		}
	}
	return out
}

// conflict says for people what of own somebody has; "": nobody has any of it.
func (s sum) conflict(own Taken) string {
	var out []string
	for _, c := range s {
		if text := c.conflict(own); text != "" {
			out = append(out, text)
		}
	}
	return strings.Join(out, ", ")
}
