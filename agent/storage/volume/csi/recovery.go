package csi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// RecoveryConfig says what is done about lost records. Both functions are optional.
type RecoveryConfig struct {
	// Lost is called with what to do about a volume whose record is lost for good. It must not block.
	Lost func(message string)
	// Origins says what is mounted where, by path: paths with the same origin show the same directory.
	// nil: the kernel's list of mounts has it.
	Origins func() (map[string]string, error)
}

// recovery has what earlier runs left of volumes whose records are missing or damaged, until something
// else names the volume: another record, the kernel's list of mounts, a pod's claim or spec, or the
// node's status. Then the record is written again, and the volume is in the book. Until then nothing of
// it is undone, and no file system is unstaged that a pod may have.
//
//	record read -> in the book
//	record lost -> recovery -> named -> record written again, in the book
//	                    '----> given up with its pod, or lost for good: it stays, and the user is told
type recovery struct {
	paths paths
	node  string
	book  book
	// origins says what was mounted at the start, by path.
	origins map[string]string
	tell    func(message string) // RecoveryConfig.Lost

	mu            sync.Mutex          // guards the fields below
	all           map[string]*unnamed // by directory of the record
	attachedKnown bool                // the node's status has named what it can
}

// unnamed is a remnant that nothing has named.
type unnamed struct {
	remnant
	taken   bool      // something names it
	lost    bool      // it is lost for good
	refused time.Time // since then the API server refuses to say what it is; zero: it does not
}

// lastDoubt is how long a refusal of the API server is not believed: a node authorizer refuses until it
// knows of the pod that has the volume, which takes minutes after a start of a large cluster's server.
const lastDoubt = 2 * time.Minute

// newRecovery reads what earlier runs left, and puts the volumes that have a record into the book.
func newRecovery(ctx context.Context, m *Mounts) *recovery {
	r := &recovery{paths: m.paths, node: m.cfg.Node, book: m.book, tell: m.cfg.Recovery.Lost,
		all: map[string]*unnamed{}, attachedKnown: m.cfg.Attached == nil}
	found, err := r.paths.remnants()
	if err != nil {
		klog.FromContext(ctx).Error(err, "What is mounted of CSI volumes could not be read wholly; "+
			"the rest is left as it is")
	}
	for _, one := range found {
		if one.err == nil {
			r.book.take(one.is.key(), one, one.is.Life == ephemeralLife)
			continue
		}
		klog.FromContext(ctx).Info("The record of a CSI volume is lost, looking for another one",
			"file", one.file(), "err", one.err)
		r.all[one.dir] = &unnamed{remnant: one}
	}
	if len(r.all) > 0 {
		if r.origins, err = m.cfg.Recovery.Origins(); err != nil {
			klog.FromContext(ctx).Info("What is mounted could not be read", "err", err)
		}
		r.infer()
	}
	return r
}

// named has all that a volume's records hold, and says where it comes from.
type named struct {
	Key
	name, label string
	ephemeral   bool
	from        string
}

// isEmpty reports whether nothing is lost.
func (r *recovery) isEmpty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all) == 0
}

// list returns what is not named, in the order of directories.
func (r *recovery) list() (out []remnant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, dir := range slices.Sorted(maps.Keys(r.all)) {
		out = append(out, r.all[dir].remnant)
	}
	return out
}

// Recall tells that a pod has a volume, as its claim or its spec says; pod "": some pod. from says in
// the log what is known of the volume.
func (r *recovery) Recall(v Volume, pod types.UID, from string) {
	if r.isEmpty() {
		return
	}
	by := named{v.Key, v.Name, v.Label, v.Ephemeral, from}
	for _, one := range r.list() {
		is := v.Block && one.block() == v.Path || !v.Block && one.block() == "" &&
			(one.place.path != "" && one.place.path == r.paths.former(v.Path) ||
				one.used() && one.uses[0] == use{pod: pod, name: v.Path})
		if is {
			r.resolve(one, by)
		}
	}
	r.inferFrom(v.Key, by)
	r.infer()
}

// former is where the kubelet staged a persistent volume before 1.24.
func (p paths) former(name string) string {
	return filepath.Join(p.plugin(), formerDir, name, globalName)
}

// inferFrom names the place where a volume is staged.
func (r *recovery) inferFrom(k Key, by named) {
	for _, one := range r.list() {
		if one.place.path != "" && one.place.path == r.paths.global(k) {
			r.resolve(one, by)
		}
	}
}

// infer names what the records of other places do: where a volume is staged follows from its handle,
// and a pod has what is mounted where one volume alone is staged.
func (r *recovery) infer() {
	if r.isEmpty() {
		return
	}
	origins := map[string]map[Key]named{}
	known := map[Key]named{}
	r.book.Each(func(k Key, e *entry) {
		by := named{Key: k, from: "the record of another place of the volume"}
		for _, p := range e.places {
			by.label = p.label
			if origin := r.origins[p.path]; origin != "" && p.name == "" {
				if origins[origin] == nil {
					origins[origin] = map[Key]named{}
				}
				origins[origin][k] = by
			}
		}
		known[k] = by
	})
	for _, k := range slices.SortedFunc(maps.Keys(known), cmpKey) {
		r.inferFrom(k, known[k])
	}
	for _, one := range r.list() {
		if !one.used() {
			continue
		}
		same := origins[r.origins[filepath.Join(one.dir, MountName)]]
		for _, by := range same {
			if len(same) == 1 {
				by.name, by.from = one.uses[0].name, "what is mounted"
				r.resolve(one, by)
			}
		}
	}
}

// resolve writes a record again, and has the volume in the book.
func (r *recovery) resolve(one remnant, by named) {
	if !r.begin(one.dir) {
		return
	}
	one.place.label = by.label
	if one.block() != "" {
		one.place.label = ""
	}
	r.book.take(by.Key, one, by.ephemeral)
	err := r.recordOf(one, by).write(one.dir)
	r.forget(one.dir)
	klog.Background().Info("The record of a CSI volume was lost, and is known again", "file", one.file(),
		"volume", by.Name(), "from", by.from, "err", err)
}

// begin reports whether nothing has named a remnant before.
func (r *recovery) begin(dir string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, is := r.all[dir]
	if !is || one.taken {
		return false
	}
	one.taken = true
	return true
}

// forget forgets a remnant, and has volumes unstaged that may have waited for it.
func (r *recovery) forget(dir string) {
	r.mu.Lock()
	delete(r.all, dir)
	r.mu.Unlock()
	r.book.EndAllUnused()
	r.book.Hasten()
}

// recordOf returns the record of a remnant.
func (r *recovery) recordOf(one remnant, by named) record {
	out := record{Driver: by.Driver, Handle: by.Handle, Label: by.label}
	if one.place.path != "" && one.block() == "" {
		return out
	}
	out.Node, out.Attachment = r.node, by.AttachmentName(r.node)
	if one.block() != "" {
		out.Label, out.Name = "", cmp.Or(by.name, one.block())
		return out
	}
	out.Name, out.Life = cmp.Or(by.name, one.uses[0].name), Volume{Kind: Kind{Ephemeral: by.ephemeral}}.life()
	return out
}

// Lost returns the uses of a pod whose volume nothing has named.
func (r *recovery) Lost(pod types.UID) (out []Use) {
	for _, one := range r.list() {
		for _, u := range one.uses {
			if u.pod == pod {
				out = append(out, r.paths.useOf(u))
			}
		}
	}
	return out
}

// Refused records that the API server refuses to say what volume this is, and reports whether to ask
// again: only what it repeats for some time is believed.
func (r *recovery) Refused(of Use) (again bool) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		if !slices.Contains(one.uses, of.use) {
			continue
		}
		if one.refused.IsZero() {
			one.refused = now
		}
		again = again || now.Sub(one.refused) < lastDoubt
	}
	return again
}

// Guess names a use that nothing names if one volume alone is staged that no pod is known to use, and
// reports whether it did.
func (r *recovery) Guess(of Use) bool {
	var all []named
	r.book.Each(func(k Key, e *entry) {
		for _, p := range e.places {
			if p.name == "" && len(e.Users) == 0 {
				all = append(all, named{Key: k, label: p.label, name: of.name,
					from: "being the only staged volume without a pod"})
			}
		}
	})
	if len(all) != 1 || of.block {
		return false
	}
	for _, one := range r.list() {
		if slices.Contains(one.uses, of.use) {
			r.resolve(one, all[0])
		}
	}
	return true
}

// Forsake gives up a use of a volume that nothing names: the pod goes, and the agent has unmounted the
// volume without its driver.
func (r *recovery) Forsake(of Use) {
	for _, one := range r.list() {
		if !slices.Contains(one.uses, of.use) {
			continue
		}
		if one.used() {
			r.forget(one.dir)
		} else {
			r.drop(one.dir, of.use)
		}
		r.tell(fmt.Sprintf("volume %s of pod %s was unmounted, and its CSI driver was not told: the "+
			"record %s was lost (%v), and neither the pod's claims nor its spec could be had. If the "+
			"driver still has the volume at %s, call its NodeUnpublishVolume or restart the driver",
			of.Name, of.pod, one.file(), one.err, of.Target))
	}
	r.judge()
}

// drop forgets one use of a block volume.
func (r *recovery) drop(dir string, u use) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one, is := r.all[dir]; is {
		one.uses = slices.DeleteFunc(slices.Clone(one.uses), func(o use) bool { return o == u })
	}
}

// held returns why no file system may be unstaged.
func (r *recovery) held() error {
	for _, one := range r.list() {
		if one.used() {
			return fmt.Errorf("pod %s may have the volume: the record %s is lost, and nothing has named "+
				"the volume yet", one.uses[0].pod, one.file())
		}
	}
	return nil
}

// MayHave reports whether a volume with such a unique name may be one that nothing has named.
func (r *recovery) MayHave(name string) bool {
	k, is := keyOf(name)
	if !is {
		return false
	}
	return slices.ContainsFunc(r.list(), func(one remnant) bool {
		return one.used() || one.block() != "" || one.place.path == r.paths.global(k) ||
			strings.HasPrefix(one.place.path, filepath.Join(r.paths.plugin(), formerDir)+"/")
	})
}

// keyOf returns the volume of a unique name.
func keyOf(name string) (k Key, is bool) {
	rest, is := strings.CutPrefix(name, pluginName+"/")
	if is {
		k.Driver, k.Handle, is = strings.Cut(rest, "^")
	}
	return k, is
}

// Recognize names volumes by their unique names in the node's status.
func (r *recovery) Recognize(names []string) {
	if !r.isEmpty() {
		for _, name := range names {
			if k, is := keyOf(name); is {
				r.inferFrom(k, named{Key: k, from: "the node's status"})
			}
		}
		r.infer()
	}
	r.mu.Lock()
	r.attachedKnown = true
	r.mu.Unlock()
	r.judge()
}
