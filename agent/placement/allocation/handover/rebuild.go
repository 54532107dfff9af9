package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cri"
)

// Annotation is on every container that holds anything, and says what it holds. On a sandbox it
// says what the pod's containers are going to hold (DescribePod). It is read when the state file
// is lost or says something else.
const Annotation = "numalet.io/assignment"

// longest bounds an annotation in bytes. The runtime lists all sandboxes, or all containers, in
// one message of at most 16 MiB, which has room for 500 such annotations. Some hundred devices fit
// in one.
const longest = 32 << 10

// Describe returns the value of Annotation for a container; "": it holds nothing. If the value is
// too long, Describe leaves out the plugins' answers, so that Allocate has to be called again
// after a loss of the state. It never leaves out ids: other pods would get the devices.
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

// Account returns what one source says that a pod of the runtime holds, by container; empty:
// nothing.
type Account func(observed cri.Pod) (map[string]allocation.Container, error)

// Rebuild returns the changes that bring the state in line with what runs. In this order of
// precedence:
//
//   - What a running container's annotation says. A state that says something else is of another
//     boot, which no container survives, or was restored. Of a pod that was resized the annotations are
//     older.
//   - What the state says of running pods.
//   - What annotations, amended, and then the accounts say of running pods that the state does not know. The
//     first account that says anything of a pod counts, and earlier accounts come before later ones.
//   - What the state says of pods that do not run. Such a pod is dropped if a running pod holds
//     some of it.
//
// The caller commits the changes. bootID is the present boot. amended (nil: nothing) has what resizes may
// have changed since a container was annotated. The error lists what cannot be read
// and what conflicts; the changes are valid all the same.
func Rebuild(s allocation.State, pods []cri.Pod, bootID string, amended Account, accounts ...Account) (
	[]allocation.Change, error) {
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
	r.ask(amend(Annotated, amended), pods)
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

// rebuilding collects the changes.
type rebuilding struct {
	bootID string
	known  sets.Set[types.UID]
	taken  allocation.Ledger
	order  []types.UID // of the pods in put
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

// take notes what the pod holds, even if another pod holds it too.
func (r *rebuilding) take(p allocation.Pod) {
	r.taken = r.taken.With(p.UID, allocation.Entry{Assigned: allocation.HoldingsOf(p)})
}

// claim is take, but returns an error if another pod holds some of it.
func (r *rebuilding) claim(p allocation.Pod) error {
	if conflict := r.taken.Conflict(p); conflict != "" {
		return errors.New(conflict)
	}
	r.take(p)
	return nil
}

// record changes the pod's assignment, unless another pod holds some of it.
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

// ask records what the account says of running pods that are not known yet.
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

// correct returns what a running pod holds by the annotations of its containers. differs: the
// state says something else. If the state is of another boot, only the annotations count, as the
// state's answers are void.
func (r *rebuilding) correct(stored allocation.Pod, observed cri.Pod) (
	p allocation.Pod, differs bool, err error) {
	sameBoot := stored.BootID == r.bootID
	if sameBoot && stored.Resources != nil {
		return stored, false, nil
	}
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

// amend returns an account that takes CPUs and memory of a container from the other one, where both know of
// some.
func amend(account, other Account) Account {
	if other == nil {
		return account
	}
	return func(observed cri.Pod) (map[string]allocation.Container, error) {
		out, err := account(observed)
		if err != nil || len(out) == 0 {
			return out, err
		}
		newer, err := other(observed)
		if err != nil {
			return out, nil // it is another account's error, if that counts
		}
		for name, c := range out {
			out[name] = c.Amended(newer[name])
		}
		return out, nil
	}
}

// alive leaves out containers that do not run; unless runningOnly, it keeps those of a ready
// sandbox.
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

// same reports whether both give the same annotation.
func same(name string, c, o allocation.Container) bool {
	one, err := Describe(name, c)
	other, otherErr := Describe(name, o)
	return err == nil && otherErr == nil && one == other
}

// Annotated is the account of the containers' annotations. The newest container of each name
// counts.
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
