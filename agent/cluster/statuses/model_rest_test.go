package statuses

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/cluster/mirror"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/topology/podspec"
)

// rest delivers everything until nothing is left to do.
func (w *world) rest() error {
	for _, f := range w.late {
		f()
	}
	w.late = nil
	for range 2000 {
		w.deliver(w.api.history[len(w.api.history)-1])
		for _, uid := range slices.Clone(w.order) {
			if p := w.pods[uid]; p.ending && !p.Cleared {
				w.live(p)
			}
		}
		k, busy := pick(w, w.calls)
		if !busy {
			if k, busy = pick(w, w.dirty); busy {
				w.send(k)
			}
		}
		if w.calls[k] != nil {
			w.answer(k, false)
		}
		if !busy && len(w.later) == 0 {
			return nil
		}
		if !busy {
			w.now = w.now.Add(time.Second)
			w.wake()
		}
	}
	return fmt.Errorf("it does not come to rest: %v, %v", w.dirty, w.later)
}

// settled checks what must hold once everything has arrived.
func (w *world) converged() error {
	mirrored := map[string]bool{}
	for _, uid := range w.order {
		p := w.pods[uid]
		there := w.api.pods[p.Pod.Name]
		if podspec.IsStatic(p.Pod) {
			if mirrored[p.Pod.Name] || there != nil && !podspec.IsMirror(there) {
				continue // an earlier pod has the mirror, or another pod has the name
			}
			mirrored[p.Pod.Name] = true
			if there == nil || !podspec.IsMirrorOf(there, p.Pod) {
				return fmt.Errorf("static pod %s has no mirror pod, but %v", uid, there)
			}
			if there.DeletionTimestamp != nil {
				return fmt.Errorf("the mirror pod of %s is left half deleted", uid)
			}
		}
		switch {
		case there == nil || !podspec.IsMirror(there) && there.UID != uid:
			return fmt.Errorf("pod %s is here and not in the API server", uid)
		case p.First:
		case podspec.IsStatic(p.Pod) && there.Status.Phase != p.After.Phase:
			return fmt.Errorf("static pod %s is %s, and its mirror pod %s", uid, p.After.Phase,
				there.Status.Phase)
		case !same(there.Status, status.Merge(there.Status, p.After)):
			return fmt.Errorf("the status of pod %s is %+v, and here %+v", uid, there.Status, p.After)
		case p.Cleared && there.DeletionTimestamp != nil && !podspec.IsMirror(there) &&
			!mirror.HeldBack(there):
			return fmt.Errorf("pod %s was forgotten in the API server", uid)
		}
	}
	for name, there := range w.api.pods {
		if podspec.IsMirror(there) && !mirrored[name] {
			return fmt.Errorf("mirror pod %s has no static pod", name)
		}
		for t, s := range w.api.others[there.UID] {
			if !slices.ContainsFunc(there.Status.Conditions, func(c v1.PodCondition) bool {
				return c.Type == t && c.Status == s
			}) {
				return fmt.Errorf("condition %s=%s of pod %s is lost", t, s, there.UID)
			}
		}
	}
	return nil
}

const (
	modelSteps = 1_000_000
	fewSteps   = 100_000
	walkSteps  = 25_000
)

// The API server ends up with the truth, whatever is lost, late, repeated or out of order: the
// final status, no pod deleted early, none forgotten, one mirror pod for each static pod.
func TestModel(t *testing.T) {
	steps := fewSteps
	if !testing.Short() {
		steps = modelSteps
	}
	number := func(name string, of int) int {
		text := os.Getenv(name)
		if text == "" {
			return of
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	steps = number("NUMALET_STEPS", steps)
	base := number("NUMALET_STEPS_SEED", int(rand.Uint32()))
	for i := range (steps + walkSteps - 1) / walkSteps {
		seed := base + i
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			t.Parallel()
			walk(t, uint64(seed), min(walkSteps, steps-i*walkSteps))
		})
	}
}

func walk(t *testing.T, seed uint64, steps int) {
	w := newWorld(seed)
	check := func(step int, err error) {
		if err == nil {
			err = w.api.wrong
		}
		if err != nil {
			t.Fatalf("NUMALET_STEPS_SEED=%d, step %d: %v\n%s", seed, step, err, w.story())
		}
	}
	for i := range steps {
		w.step()
		check(i, nil)
		if i%250 != 249 {
			continue
		}
		check(i, w.rest())
		check(i, w.converged())
		wrote := w.api.wrote
		check(i, w.rest())
		if w.api.wrote != wrote {
			check(i, fmt.Errorf("something is written although nothing happened"))
		}
		w.trace = w.trace[:0]
	}
	if w.api.wrote < steps/50 {
		t.Errorf("%d writes in %d steps: the walk does not go there", w.api.wrote, steps)
	}
}

func (w *world) story() (text string) {
	for _, line := range w.trace[max(0, len(w.trace)-60):] {
		text += line + "\n"
	}
	return text
}
