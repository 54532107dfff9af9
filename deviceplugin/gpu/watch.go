package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/numalet/numalet/deviceplugin/gpu/prefer"
)

// watch holds what is known of the GPUs: the last snapshot, and events that no snapshot shows. One
// goroutine at a time uses it, Plugin.run's.
type watch struct {
	rules  HealthRules
	log    func(format string, args ...any)
	counts *counts

	last *Snapshot // nil before the first snapshot
	// began is when the reading of last began.
	began time.Time
	// unloaded: the driver has gone since the last snapshot. A newly loaded driver has reset the
	// GPUs, and GPUs that it lacks are not lost: they are not there.
	unloaded bool
	// links is the largest number of NVLinks of a GPU that were up since the driver was loaded, by
	// UUID.
	links     map[string]int
	histories map[part]history
	// away says why nothing is known now; nil while the driver answers.
	away *Trouble
	// said holds the last logged text of each GPU and MIG device.
	said map[string]string
}

// part is a GPU, by its UUID, or one of its GPU instances.
type part struct {
	gpu      string
	instance int // or NoInstance
}

func (w *watch) up() bool { return w.away == nil && w.last != nil }

// gone notes that the driver is absent or does not answer: its devices cannot be used.
func (w *watch) gone(err error) {
	w.away = &Trouble{DriverGone, err.Error()}
	w.unloaded = w.unloaded || errors.Is(err, ErrNoDriver)
	if errors.Is(err, errHangs) {
		w.away = &Trouble{DriverHangs, err.Error()}
	}
}

// read applies a snapshot.
func (w *watch) read(s Snapshot, now time.Time) {
	if w.last == nil || w.unloaded || w.last.Driver != s.Driver {
		clear(w.histories)
		w.links = map[string]int{}
	} else {
		s = carried(*w.last, s)
	}
	s.GPUs = w.linked(s.GPUs)
	if w.last == nil || w.last.Driver != s.Driver {
		w.log("driver %s: %d GPUs", s.Driver, len(s.GPUs))
	}
	for _, g := range s.GPUs {
		if w.wasLost(g.UUID) && !g.Reading.Lost && g.Reading.Silent == "" { // only a reset brings it back
			maps.DeleteFunc(w.histories,
				func(p part, _ history) bool { return p.gpu == g.UUID })
		}
		for p, h := range w.histories {
			if p.gpu == g.UUID {
				w.histories[p] = h.pruned(g.Reading, w.rules, now)
			}
		}
	}
	maps.DeleteFunc(w.histories, func(_ part, h history) bool { return len(h) == 0 })
	w.last, w.unloaded, w.away = &s, false, nil
}

// linked returns the GPUs with all their NVLinks that are down, also those that this session never
// saw up.
func (w *watch) linked(gpus []GPU) []GPU {
	out := slices.Clone(gpus)
	for i, g := range out {
		r := &out[i].Reading
		w.links[g.UUID] = max(w.links[g.UUID], r.LinksUp)
		r.LinksDown = max(r.LinksDown, w.links[g.UUID]-r.LinksUp)
	}
	return out
}

func (w *watch) wasLost(uuid string) bool {
	return w.last != nil && slices.ContainsFunc(w.last.GPUs,
		func(g GPU) bool { return g.UUID == uuid && g.Reading.Lost })
}

// carried adds the GPUs that have vanished: as silent if the driver says that it cannot read them,
// else as lost.
func carried(last, s Snapshot) Snapshot {
	for _, g := range last.GPUs {
		if slices.ContainsFunc(s.GPUs, func(o GPU) bool { return o.UUID == g.UUID }) {
			continue
		}
		g.Reading = Reading{Lost: true}
		if why, has := s.Silent[g.Index]; has && !why.Lost {
			g.Reading = Reading{Silent: why.Said}
		}
		s.GPUs = append(slices.Clone(s.GPUs), g)
		links := make(prefer.Links, len(s.GPUs))
		for i := range links {
			links[i] = make([]prefer.Link, len(s.GPUs))
			for j := range links[i] {
				links[i][j].Path = prefer.System
				if i < len(s.Links) && j < len(s.Links) {
					links[i][j] = s.Links[i][j]
				}
			}
		}
		s.Links = links
	}
	return s
}

// event applies an event, and reports whether it counts.
func (w *watch) event(e Event, now time.Time) bool {
	xid := e.XID
	if e.Kind == DoubleBitEvent {
		xid = 48 // the same error
	}
	class, text := classOf(xid)
	w.counts.xid(e.GPU, xid, class)
	if !w.rules.counts(xid) {
		w.log("GPU %s: XID %d, %s: it does not count against the GPU",
			cmp.Or(e.GPU, "(not known which)"), xid, text)
		return false
	}
	for _, p := range w.whose(e) {
		w.histories[p] = w.histories[p].with(xid, now)
	}
	return true
}

// whose returns what an event concerns: all GPUs if the GPU is not known.
func (w *watch) whose(e Event) (parts []part) {
	if w.last == nil {
		return nil
	}
	for _, g := range w.last.GPUs {
		switch e.GPU {
		case "":
			parts = append(parts, part{g.UUID, NoInstance})
		case g.UUID:
			parts = append(parts, part{g.UUID, e.Instance})
		}
	}
	return parts
}

// offers returns the present offers, and logs changes of health.
func (w *watch) offers(set Settings) (offers, Snapshot) {
	if w.last == nil {
		return offers{}, Snapshot{}
	}
	said := map[string]string{}
	health := func(g GPU, instance *Instance) []Trouble {
		key, what := g.UUID, fmt.Sprintf("GPU %d (%s)", g.Index, g.UUID)
		troubles := w.troubles(g, NoInstance)
		if instance != nil {
			key = instance.UUID
			what = fmt.Sprintf("MIG device %s of GPU %d", instance.UUID, g.Index)
			troubles = w.troubles(g, instance.GPU)
		}
		text := Describe(troubles)
		if text != "" && g.NodeDoubt != "" {
			text += "; " + g.NodeDoubt
		}
		w.tell(what, w.said[key], text)
		if w.said[key] != text {
			w.counts.changed(key, cmp.Or(reasonOf(troubles), "Recovered"))
		}
		said[key] = text
		return troubles
	}
	all := offersOf(*w.last, set, facts{health, func(resource string) bool {
		_, err := os.Stat(filepath.Join(set.MPSRoot, resource, "pipe", "control"))
		return err == nil
	}})
	for _, why := range append(all.refused, w.doubts()...) {
		said[why] = why
		if w.said[why] == "" {
			w.log("%s", why)
		}
	}
	w.said = said
	return all, *w.last
}

// doubts returns oddities that keep nothing from working.
func (w *watch) doubts() []string {
	all := slices.Clone(w.last.Warnings)
	for index, why := range w.last.Silent {
		if !slices.ContainsFunc(w.last.GPUs, func(g GPU) bool { return g.Index == index }) {
			all = append(all, fmt.Sprintf("GPU %d of the driver is not offered, it does not answer: %s",
				index, why.Said))
		}
	}
	slices.Sort(all)
	for _, g := range w.last.GPUs {
		if g.NodeDoubt != "" {
			all = append(all, fmt.Sprintf("GPU %d (%s): %s", g.Index, g.UUID, g.NodeDoubt))
		}
	}
	return all
}

// troubles returns all faults of a GPU or of one of its instances.
func (w *watch) troubles(g GPU, instance int) []Trouble {
	if w.away != nil {
		return []Trouble{*w.away}
	}
	all := ailing(g.Reading, w.histories[part{g.UUID, NoInstance}], w.rules)
	if instance != NoInstance && !w.rules.Off {
		all = append(all, w.histories[part{g.UUID, instance}].troubles()...)
	}
	return all
}

func (w *watch) tell(what, before, now string) {
	switch {
	case before == now:
	case now == "":
		w.log("%s is healthy again, it was not because of %s", what, before)
	default:
		w.log("%s is unhealthy: %s", what, now)
	}
}
