package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/cri"
)

// Annotation is on every container that holds anything: what it holds, so that the runtime knows
// it too. On a sandbox it is what the containers of the pod are going to hold (DescribePod). The
// state file comes first; this is for when it is lost.
const Annotation = "numalet.io/assignment"

// longest is how long an annotation may be. A list of all sandboxes, or of all containers, is one
// message, of 16 MiB at most: 500 of them may have annotations that long. Some hundred devices fit
// in it.
const longest = 32 << 10

// Describe is the value of Annotation for a container, "" for one that holds nothing. If it would
// be too long the plugins' answers are left out, so that Allocate has to be called again after a
// loss of the state. Ids are not, however many there are: others would be given the devices.
func Describe(name string, c allocation.Container) (string, error) {
	text, err := described(name, c)
	if err != nil || len(text) <= longest {
		return text, err
	}
	return described(name, allocation.WithoutAnswers(map[string]allocation.Container{name: c})[name])
}

func described(name string, c allocation.Container) (string, error) {
	if c.IsEmpty() {
		return "", nil
	}
	raw, err := json.Marshal(allocation.Named{Name: name, Container: c})
	if err != nil {
		return "", fmt.Errorf("describe the assignment of %s: %w", name, err)
	}
	return string(raw), nil
}

// Account is one record of what a pod of the runtime holds, by container; empty when it has none.
type Account func(observed cri.Pod) (map[string]allocation.Container, error)

// Rebuild brings the state in line with what runs. Containers know what they were created with, so
// that they come before a state that says something else of them: one of another boot, which no
// container outlives, or one that was restored. What pods hold that run and that the state does not
// know, the accounts say: the first that has something of a pod counts, and what an earlier account
// says of any pod comes before what a later one says. What the state has of pods that do not run
// goes if others run with it.
//
// The changes are to be committed; bootID is that of the boot that the pods run in. The error lists
// what cannot be read or conflicts; the rest is good all the same.
func Rebuild(s allocation.State, pods []cri.Pod, bootID string, accounts ...Account) ([]allocation.Change, error) {
	r := rebuilding{
		bootID: bootID, known: sets.KeySet(s.Pods), put: map[types.UID]allocation.Pod{},
	}
	var corrected []allocation.Pod
	idle := maps.Clone(s.Pods)
	for _, observed := range pods {
		stored, known := s.Pods[observed.UID]
		if !known || !observed.Running() {
			continue
		}
		delete(idle, observed.UID)
		p, differs, err := r.correct(stored, observed)
		if err != nil {
			r.failed(stored, err)
		}
		if differs {
			corrected = append(corrected, p)
		} else {
			r.take(stored)
		}
	}
	for _, p := range corrected {
		if !r.record(p) {
			r.take(s.Pods[p.UID])
		}
	}
	r.ask(Annotated, pods)
	for _, observed := range pods {
		r.addUncreated(observed)
	}
	for _, account := range accounts {
		r.ask(account, pods)
	}
	for _, uid := range slices.Sorted(maps.Keys(idle)) {
		if err := r.claim(idle[uid]); err != nil {
			r.drop = append(r.drop, uid)
			r.failed(idle[uid], err)
		}
	}
	return r.all(), errors.Join(r.errs...)
}

// rebuilding is the changes in the making.
type rebuilding struct {
	bootID string
	known  sets.Set[types.UID]
	taken  allocation.Ledger
	order  []types.UID // of what is in put
	put    map[types.UID]allocation.Pod
	drop   []types.UID
	errs   []error
}

func (r *rebuilding) all() (out []allocation.Change) {
	for _, uid := range r.order {
		out = append(out, allocation.Change{Put: r.put[uid]})
	}
	for _, uid := range r.drop {
		out = append(out, allocation.Change{Drop: uid})
	}
	return out
}

func (r *rebuilding) failed(p allocation.Pod, err error) {
	r.errs = append(r.errs, fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err))
}

// take lets the pod have what it holds, whoever else does.
func (r *rebuilding) take(p allocation.Pod) {
	r.taken = r.taken.With(p.UID, allocation.Entry{Assigned: allocation.TakenBy(p)})
}

// claim takes what the pod holds, or says what of it another one has.
func (r *rebuilding) claim(p allocation.Pod) error {
	if conflict := r.taken.Conflict(p); conflict != "" {
		return errors.New(conflict)
	}
	r.take(p)
	return nil
}

// record notes what a pod has, unless another pod has some of it.
func (r *rebuilding) record(p allocation.Pod) bool {
	if err := r.claim(p); err != nil {
		r.failed(p, err)
		return false
	}
	r.note(p)
	return true
}

func (r *rebuilding) note(p allocation.Pod) {
	if _, again := r.put[p.UID]; !again {
		r.order = append(r.order, p.UID)
	}
	r.known.Insert(p.UID)
	r.put[p.UID] = p
}

// ask takes what the account has of pods that run and are not known yet.
func (r *rebuilding) ask(account Account, pods []cri.Pod) {
	for _, observed := range pods {
		if r.known.Has(observed.UID) || !observed.Running() {
			continue
		}
		p := allocation.Pod{
			UID: observed.UID, Namespace: observed.Namespace, Name: observed.Name, BootID: r.bootID,
		}
		var err error
		if p.Containers, err = account(observed); err != nil {
			r.failed(p, err)
		} else if !p.IsEmpty() {
			r.record(p)
		}
	}
}

// correct is what a pod that runs has, if its containers say something else than the state. Of a
// record of another boot nothing else is left: the plugins' answers in it are void.
func (r *rebuilding) correct(stored allocation.Pod, observed cri.Pod) (p allocation.Pod, differs bool, err error) {
	sameBoot := stored.BootID == r.bootID
	said, err := Annotated(alive(observed, sameBoot))
	if err != nil || len(said) == 0 {
		return stored, false, err
	}
	p = stored
	p.BootID, p.Containers = r.bootID, map[string]allocation.Container{}
	if sameBoot {
		maps.Copy(p.Containers, stored.Containers)
	}
	differs = !sameBoot
	for name, c := range said {
		differs = differs || !same(name, c, stored.Containers[name])
		p.Containers[name] = c
	}
	return p, differs, nil
}

// alive leaves out the containers that may be of an earlier boot, or those that do not run.
func alive(observed cri.Pod, runningOnly bool) cri.Pod {
	ready := map[string]bool{}
	for _, s := range observed.Sandboxes {
		ready[s.ID] = s.Ready && !runningOnly
	}
	observed.Containers = slices.DeleteFunc(slices.Clone(observed.Containers),
		func(c cri.Container) bool {
			return c.State != cri.ContainerRunning && !ready[c.SandboxID]
		})
	return observed
}

// same reports whether a container of that name would carry the same of both.
func same(name string, c, o allocation.Container) bool {
	one, err := Describe(name, c)
	other, otherErr := Describe(name, o)
	return err == nil && otherErr == nil && one == other
}

// Annotated is the account that is on the containers themselves: the newest of each name counts.
func Annotated(observed cri.Pod) (map[string]allocation.Container, error) {
	out := map[string]allocation.Container{}
	for _, c := range observed.Containers { // newest first
		text, ok := c.Annotations[Annotation]
		if _, newer := out[c.Name]; newer || !ok {
			continue
		}
		var held allocation.Named
		if err := json.Unmarshal([]byte(text), &held); err != nil {
			return nil, fmt.Errorf("container %s: annotation %s: %w", c.Name, Annotation, err)
		}
		out[c.Name] = held.Container
	}
	return out, nil
}
