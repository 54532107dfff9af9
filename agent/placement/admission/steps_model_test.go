package admission

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology/memory"
)

// tenant is a pod of the model.
type tenant struct {
	*order
	// desired by a source, known to the queue of this run of the agent, leaving: it terminates,
	// maybe since it has ended by itself, going: released while nothing can be written, again: desired anew before it was released.
	desired, known, leaving, ended, going, again bool
	alive                                        bool // its sandbox
	// said is admission's last word, since when it has been asked.
	said   decide.Outcome
	reason string
	since  time.Time
	owedAt time.Time // when a plugin was seen last that was still to hear of what the pod wants
	epoch  int       // of the site then
	// held is what the store must have of it; nil: nothing. It changes only when the pod is
	// admitted.
	held *grant
	// worn is what its containers were created with.
	worn *grant
	// keeps: it must be admitted, with what it held.
	keeps bool
	// aside: others may have come before it since it could not start.
	aside bool
	// inflight: what it is to get was chosen before the last step.
	inflight bool
	// troubledAt is when its claims could not be used, or their drivers were not well.
	troubledAt time.Time
}

// grant is what a pod holds, copied out of the store so that nothing written to there shows here.
type grant struct {
	text    string // all of it
	cpus    mask
	devices []string // "resource/id"
	blocks  []memory.Block
	parts   map[string]part
	pod     allocation.Pod
	epoch   int // of the site on which it was chosen
	claims  []types.UID
	// byClaim and byPlugin are the PCI addresses of what it has in either way.
	byClaim, byPlugin []string
}

// part is one container's.
type part struct {
	cpus    mask
	count   [len(stepResources)]int
	devices []string
	blocks  []memory.Block
}

// written is all of an assignment as text, of which containers without anything are no part.
func written(p allocation.Pod) string {
	var b []byte
	for _, s := range []string{string(p.UID), p.Namespace, p.Name, p.BootID} {
		b = append(append(b, s...), ' ')
	}
	for _, name := range slices.Sorted(maps.Keys(p.Containers)) {
		c := p.Containers[name]
		if c.IsEmpty() {
			continue
		}
		b = append(append(b, name...), ": cpus "...)
		b = append(b, c.CPUs().String()...)
		for _, m := range c.Memory() {
			b = append(append(append(b, ' '), m.Resource...), '@')
			b = append(append(b, m.Nodes.String()...), '=')
			b = strconv.AppendUint(b, m.Size, 10)
		}
		for _, one := range c.Claims() {
			b = append(append(append(append(b, ' '), one.Name...), '='), one.UID...)
		}
		for _, d := range c.Devices() {
			b = append(append(b, ' '), d.Resource...)
			for i, id := range d.IDs {
				b = append(append(append(append(b, ' '), id...), '@'), d.NodesOf(i).String()...)
			}
			b = strconv.AppendBool(append(b, ' '), d.Answer != nil)
			b = append(b, d.Answer...)
		}
		b = append(b, "; "...)
	}
	return string(b)
}

func grantOf(p allocation.Pod, epoch int) *grant {
	g := &grant{text: written(p), parts: map[string]part{}, pod: p, epoch: epoch}
	for name, c := range p.Containers {
		own := part{cpus: maskOf(c.CPUs()), blocks: slices.Clone(c.Memory())}
		for _, d := range c.Devices() {
			at := slices.Index(stepResources[:], d.Resource)
			own.count[at] += len(d.IDs)
			for _, id := range d.IDs {
				own.devices = append(own.devices, d.Resource+"/"+id)
			}
		}
		g.cpus |= own.cpus
		g.blocks = append(g.blocks, own.blocks...)
		for _, id := range own.devices {
			if !slices.Contains(g.devices, id) { // init containers pass theirs on
				g.devices = append(g.devices, id)
			}
		}
		g.parts[name] = own
		g.addClaims(c)
	}
	return g
}

func (w *walk) find(uid types.UID) *tenant {
	for _, t := range w.tenants {
		if t.uid == uid {
			return t
		}
	}
	return nil
}

func (w *walk) drop(t *tenant) {
	w.tenants = slices.DeleteFunc(w.tenants, func(o *tenant) bool { return o == t })
}

// fresh checks what a pod got that was placed anew: what it requests, of what there is.
func (w *walk) fresh(t *tenant, before *grant) {
	g := t.held
	if g == nil {
		g = &grant{parts: map[string]part{}}
	}
	for i := range t.wishes {
		w.asked(t, &t.wishes[i], g, before)
	}
	w.beside(t, g)
	w.oneOwner(t, g, before)
	s := w.site
	if !t.inflight {
		if gone := g.cpus &^ (s.online() &^ s.reserved); gone != 0 && s.ownCPUs {
			w.failf("%s got CPUs %s, which are offline or reserved", t.uid, gone.set())
		}
		if s.ownCPUs && (s.options.FullPCPUsOnly || t.rules.WholeCores) && before == nil &&
			t.epoch == s.epoch {
			w.wholeCores(t, g)
		}
		if other := g.cpus &^ s.pool(t.rules.Isolated); other != 0 && s.ownCPUs {
			w.failf("%s got CPUs %s, and isolated are %s", t.uid, other.set(), s.isolated.set())
		}
		w.seenPool(t, g)
	}
	for _, id := range g.devices {
		held := before != nil && before.pod.BootID == w.bootID() &&
			slices.Contains(before.devices, id)
		if !held && !t.inflight && !w.plugins.healthy(id) {
			w.failf("%s got %s, which is not to be had", t.uid, id)
		}
	}
	for name, c := range g.pod.Containers {
		for _, d := range c.Devices() {
			if !bytes.Contains(d.Answer, []byte(w.bootID())) {
				w.failf("%s of %s: the answer %q for %s is not of this boot",
					name, t.uid, d.Answer, d.Resource)
			}
		}
	}
	w.memoryFits(t, g)
}

// pool is the CPUs that a pod may get, isolated ones or not.
func (s *site) pool(isolated bool) mask {
	if isolated {
		return s.isolated
	}
	return ^s.isolated
}

// padded reports whether so many CPUs are what whole cores make of fewer. While CPUs are offline
// there are cores of several sizes. A pod that came when the site was another one may have been given
// cores of then, before its drivers took their time.
func (s *site) padded(asked, got, came int) bool {
	if s.offline != 0 || came != s.epoch {
		return got >= asked && got < asked+s.threads
	}
	return got == (asked+s.threads-1)/s.threads*s.threads
}

func (w *walk) seenPool(t *tenant, g *grant) {
	if g.cpus == 0 || !w.site.ownCPUs {
		return
	}
	if t.rules.Isolated {
		w.seen["isolated CPUs"]++
	}
	for i := range t.wishes {
		if popcount(g.parts[t.wishes[i].name].cpus) > t.exclusive(&t.wishes[i]) {
			w.seen["padded CPUs"]++
		}
	}
}

// asked checks that a container has as much as it requests under the policies of the site.
func (w *walk) asked(t *tenant, c *wish, g, before *grant) {
	p, s := g.parts[c.name], w.site
	cpus, blocks := 0, map[string]int64{}
	if s.ownCPUs {
		cpus = t.exclusive(c)
	}
	if t.guaranteed && s.ownMemory {
		blocks["memory"] = c.memory
		if c.pages > 0 {
			blocks["hugepages-2Mi"] = c.pages
		}
	}
	// By the policy then.
	earlier := !s.ownCPUs && before != nil && p.cpus == before.parts[c.name].cpus
	if got := popcount(p.cpus); got != cpus && !earlier && !(t.rules.WholeCores && cpus > 0 &&
		s.padded(cpus, got, t.epoch)) {
		w.failf("%s of %s got CPUs %s, want %d", c.name, t.uid, p.cpus.set(), cpus)
	}
	if p.count != c.devices {
		w.failf("%s of %s got %v, want %v", c.name, t.uid, p.devices, c.devices)
	}
	for at, chosen := range c.chosen {
		if len(chosen) == 0 || before != nil {
			continue
		}
		w.seen["chosen devices"]++
		if got := devicesAt(p, at); !slices.Equal(got, chosen) {
			w.failf("%s of %s got %v, and chosen are %v", c.name, t.uid, got, chosen)
		}
	}
	if !s.ownMemory && before != nil && slices.Equal(p.blocks, before.parts[c.name].blocks) {
		return // likewise
	}
	ok := len(p.blocks) == len(blocks)
	for _, b := range p.blocks {
		size := int64(b.Size)
		ok = ok && b.Nodes == p.blocks[0].Nodes &&
			(size == blocks[string(b.Resource)] ||
				c.role == starts && size < blocks[string(b.Resource)])
	}
	if !ok {
		w.failf("%s of %s got %v, want %v", c.name, t.uid, p.blocks, blocks)
	}
}

// beside checks that nobody else has any of it, and that containers which run at the same time have
// things of their own.
func (w *walk) beside(t *tenant, g *grant) {
	for _, o := range w.tenants {
		if o == t || o.held == nil {
			continue
		}
		if both := g.cpus & o.held.cpus; both != 0 {
			w.failf("%s and %s both hold CPUs %s", t.uid, o.uid, both.set())
		}
		for _, id := range g.devices {
			if slices.Contains(o.held.devices, id) {
				w.failf("%s and %s both hold %s", t.uid, o.uid, id)
			}
		}
	}
	var cpus mask
	var devices []string
	for i := range t.wishes {
		p := g.parts[t.wishes[i].name]
		if both := cpus & p.cpus; both != 0 {
			w.failf("containers of %s run beside each other on CPUs %s", t.uid, both.set())
		}
		for _, id := range p.devices {
			if slices.Contains(devices, id) {
				w.failf("containers of %s have %s at the same time", t.uid, id)
			}
		}
		if t.wishes[i].role != starts {
			cpus |= p.cpus
			devices = append(devices, p.devices...)
		}
	}
}

func (w *walk) wholeCores(t *tenant, g *grant) {
	for cpu := range w.site.size() {
		core, _ := w.site.place(cpu)
		for other := range w.site.size() {
			of, _ := w.site.place(other)
			if of == core && g.cpus.has(cpu) && !g.cpus.has(other) && w.site.online().has(other) {
				w.failf("%s got CPU %d and not %d of the same core", t.uid, cpu, other)
			}
		}
	}
}

// memoryFits checks that nodes are used alone or in one group, and that a group has no less than
// what is held of it.
func (w *walk) memoryFits(t *tenant, g *grant) {
	if !w.site.ownMemory {
		return
	}
	for _, b := range g.blocks {
		if _, lent := b.Lent(g.blocks); lent {
			continue
		}
		sum, have := uint64(0), uint64(0)
		for _, o := range w.tenants {
			if o.held == nil {
				continue
			}
			for _, other := range o.held.blocks {
				if _, lent := other.Lent(o.held.blocks); lent {
					continue
				}
				// What was kept from another time may name nodes that have no memory now.
				its, theirs := w.site.backed(b.Nodes), w.site.backed(other.Nodes)
				if its != theirs && !its.Intersect(theirs).IsEmpty() && o.held.epoch == g.epoch {
					w.failf("%s has memory of nodes %s, %s of nodes %s; the nodes have %v",
						t.uid, b.Nodes, o.uid, other.Nodes, w.site.memory)
				}
				if other.Nodes == b.Nodes && other.Resource == b.Resource {
					sum += other.Size
				}
			}
		}
		for _, id := range b.Nodes.IDs() {
			have += w.site.has(int(id), b.Resource)
		}
		if sum > have {
			w.failf("%s: %d bytes of %s are held of nodes %s, which have %d",
				t.uid, sum, b.Resource, b.Nodes, have)
		}
	}
}

// mayWait tells why a pod may wait with that reason; no: it may not.
func (w *walk) mayWait(t *tenant) (no string) {
	switch t.reason {
	case claim.ReasonWaitClaim, claim.ReasonWaitDriver:
		if time.Since(t.troubledAt) < claimTime {
			return ""
		}
		return "its claims can be used"
	case decide.ReasonWaitObjects:
		if w.hinders(t) == (decide.Lack{}) {
			return "it could start"
		}
		return ""
	case decide.ReasonWaitResources:
		if t.aside {
			return ""
		}
		for _, o := range w.tenants {
			if o != t && (o.leaving || o.going || o.held != nil && !o.known) {
				return ""
			}
		}
		if len(w.desk.store.State().PendingReleases) > 0 {
			return ""
		}
		return "nobody terminates"
	case decide.ReasonWaitDevices, decide.ReasonWaitPlugin:
		if w.owes(t) {
			return ""
		}
		for i := range stepResources {
			if t.wants(i) && w.plugins.ails(i, t.reason) {
				return ""
			}
		}
		return "all of its plugins are well"
	case decide.ReasonWaitStore:
		if w.broken {
			return ""
		}
		return "the file can be written"
	}
	return fmt.Sprintf("%q is no reason", t.reason)
}
