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

// watch is what is known of the GPUs: the last snapshot, and what has happened that no snapshot
// has. Only the goroutine of Plugin.run uses it.
type watch struct {
	rules  HealthRules
	log    func(format string, args ...any)
	counts *counts

	last *Snapshot // nil before the first
	// unloaded: the driver has gone since the last snapshot. One that was loaded anew has reset the
	// GPUs, and those that are missing then are not lost, they are not there.
	unloaded bool
	// links is how many NVLinks of a GPU were up at most since the driver was loaded, by UUID.
	links map[string]int
	// histories are by a GPU's UUID, or by UUID/instance for one GPU instance of it.
	histories map[string]history
	// away is why nothing is known at the moment; nil when the driver answers.
	away *Trouble
	// said is what was logged last of each GPU and MIG device.
	said map[string]string
}

func (w *watch) up() bool { return w.away == nil && w.last != nil }

// gone is a driver that is not there, or does not answer: what there was cannot be used.
func (w *watch) gone(err error) {
	w.away = &Trouble{DriverGone, err.Error()}
	w.unloaded = w.unloaded || errors.Is(err, ErrNoDriver)
	if errors.Is(err, errHangs) {
		w.away = &Trouble{DriverHangs, err.Error()}
	}
}

// read takes a snapshot.
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
		if w.wasLost(g.UUID) && !g.Reading.Lost && g.Reading.Silent == "" { // it could not have come back without a reset
			maps.DeleteFunc(w.histories,
				func(key string, _ history) bool { return isOf(key, g.UUID) })
		}
		for key, h := range w.histories {
			if isOf(key, g.UUID) {
				w.histories[key] = h.settled(g.Reading, w.rules, now)
			}
		}
	}
	maps.DeleteFunc(w.histories, func(_ string, h history) bool { return len(h) == 0 })
	w.last, w.unloaded, w.away = &s, false, nil
}

// linked are GPUs with the NVLinks that are down, though the session that reads them has not seen
// them up.
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

// carried adds the GPUs that have vanished: as lost, unless the driver says that it cannot read them.
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

// event takes what the driver says by itself; it reports whether that counts.
func (w *watch) event(e Event, now time.Time) bool {
	xid := e.XID
	if e.Kind == DoubleBitEvent {
		xid = 48 // says the same
	}
	class, text := classOf(xid)
	w.counts.xid(e.GPU, xid, class)
	if !w.rules.counts(xid) {
		w.log("GPU %s: XID %d, %s: it does not count against the GPU",
			cmp.Or(e.GPU, "(not known which)"), xid, text)
		return false
	}
	for _, uuid := range w.whose(e) {
		w.histories[uuid] = w.histories[uuid].with(xid, now)
	}
	return true
}

// whose are the histories that an event belongs to: all, if nobody knows.
func (w *watch) whose(e Event) (keys []string) {
	if w.last == nil {
		return nil
	}
	for _, g := range w.last.GPUs {
		switch {
		case e.GPU == "" || g.UUID == e.GPU && e.Instance == NoInstance:
			keys = append(keys, g.UUID)
		case g.UUID == e.GPU:
			keys = append(keys, ofInstance(g.UUID, e.Instance))
		}
	}
	return keys
}

func ofInstance(uuid string, instance int) string { return fmt.Sprintf("%s/%d", uuid, instance) }

// isOf reports whether a key of histories is of that GPU.
func isOf(key, uuid string) bool {
	return key == uuid || len(key) > len(uuid) && key[:len(uuid)+1] == uuid+"/"
}

// offers is what there is to offer now. What has changed in health is logged.
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
		text := describe(troubles)
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

// doubts are what is odd and keeps nothing from working.
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

// troubles are all that is wrong with a GPU, or with one instance of it.
func (w *watch) troubles(g GPU, instance int) []Trouble {
	if w.away != nil {
		return []Trouble{*w.away}
	}
	all := ailing(g.Reading, w.histories[g.UUID], w.rules)
	if instance != NoInstance && !w.rules.Off {
		all = append(all, w.histories[ofInstance(g.UUID, instance)].troubles()...)
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
