package cluster_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/test/harness"
)

// vpaHistory knows what became of each patch of an updater, as a watcher of pods sees it.
type vpaHistory struct {
	mu      sync.Mutex
	pods    map[types.UID]vpaPod
	patches []*vpaPatch
	wrong   []string
}

// vpaPod is the last state of a pod, and when it came.
type vpaPod struct {
	*v1.Pod
	at   time.Time
	gone bool
}

// vpaPatch is a patch of a pod's resources.
type vpaPatch struct {
	pod     *v1.Pod // as the API server had it then
	at      time.Time
	outcome string        // "": the agent has not answered
	took    time.Duration // until the first outcome
	waited  bool          // it was not done at first
}

// vpaDone is the outcome of a patch that was carried out. Others are reasons of PodResizePending.
const vpaDone = "Done"

// tell takes a new state of a pod.
func (h *vpaHistory) tell(p *v1.Pod, gone bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, now := h.pods[p.UID], vpaPod{p, time.Now(), gone}
	h.pods[p.UID] = now
	for _, c := range p.Status.ContainerStatuses {
		if c.RestartCount > 0 {
			h.wrong = append(h.wrong, fmt.Sprintf("%s of %s was started anew: %+v", c.Name, p.Name, c))
		}
		if last.Pod == nil {
			continue
		}
		for _, before := range last.Status.ContainerStatuses {
			if before.Name == c.Name && before.ContainerID != "" && before.ContainerID != c.ContainerID {
				h.wrong = append(h.wrong, fmt.Sprintf("%s of %s was %s and is %s", c.Name, p.Name,
					before.ContainerID, c.ContainerID))
			}
		}
	}
	for _, patch := range h.patches {
		patch.answered(now)
	}
}

// begin takes a patch that was sent.
func (h *vpaHistory) begin(p *v1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	patch := &vpaPatch{pod: p, at: time.Now()}
	h.patches = append(h.patches, patch)
	patch.answered(h.pods[p.UID]) // which may have come before the API server's answer to the patch
}

// answered takes the outcome from a state of a pod. One that is deferred may still be done.
func (x *vpaPatch) answered(by vpaPod) {
	if by.Pod == nil || by.UID != x.pod.UID || x.outcome == vpaDone {
		return
	}
	outcome := x.outcome
	pending, is := conditionOf(by.Pod, v1.PodResizePending)
	switch {
	case by.Status.ObservedGeneration < x.pod.Generation:
	case is && pending.ObservedGeneration >= x.pod.Generation && pending.Message != "":
		outcome = pending.Reason
	case !is && isSettledResize(by.Pod) && hasResources(by.Pod, x.pod):
		outcome = vpaDone
	}
	if x.outcome == "" && outcome != "" {
		x.took, x.waited = max(by.at.Sub(x.at), 0), outcome != vpaDone
	}
	x.outcome = outcome
}

// hasResources reports whether the containers were allocated, and run with, what the spec of wants says.
func hasResources(p, wants *v1.Pod) bool {
	has := map[string]v1.ContainerStatus{}
	for _, s := range p.Status.ContainerStatuses {
		has[s.Name] = s
	}
	return !slices.ContainsFunc(wants.Spec.Containers, func(c v1.Container) bool {
		s, to := has[c.Name], c.Resources
		return s.Resources == nil || !sameAmounts(s.AllocatedResources, to.Requests) ||
			!sameAmounts(s.Resources.Requests, to.Requests) || !sameAmounts(s.Resources.Limits, to.Limits)
	})
}

func sameAmounts(a, b v1.ResourceList) bool {
	return a.Cpu().Cmp(*b.Cpu()) == 0 && a.Memory().Cmp(*b.Memory()) == 0
}

// awaitAnswered waits until the agent has answered every patch of pods that are there.
func (h *vpaHistory) awaitAnswered(t *testing.T) {
	t.Helper()
	harness.Eventually(t, "every patch is answered", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, patch := range h.patches {
			if now := h.pods[patch.pod.UID]; patch.outcome == "" && !now.gone {
				return fmt.Errorf("%s wants %+v and has %+v", now.Name, patch.pod.Spec.Containers, now.Status)
			}
		}
		return nil
	})
}

// now returns the pods that are there.
func (h *vpaHistory) now() []*v1.Pod {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nowLocked()
}

func (h *vpaHistory) nowLocked() (out []*v1.Pod) {
	for _, p := range h.pods {
		if !p.gone && p.DeletionTimestamp == nil {
			out = append(out, p.Pod)
		}
	}
	return out
}

// check checks what has become of the patches and pods.
func (h *vpaHistory) check(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	outcomes := h.outcomesLocked()
	for _, outcome := range []string{vpaDone, v1.PodReasonDeferred, v1.PodReasonInfeasible} {
		if outcomes[outcome] == 0 {
			t.Errorf("no patch was %s: %v", outcome, outcomes)
		}
	}
	last := map[types.UID]*vpaPatch{}
	for _, patch := range h.patches {
		last[patch.pod.UID] = patch
	}
	for _, p := range h.nowLocked() {
		patch, is := last[p.UID]
		if !is {
			continue
		}
		_, pending := conditionOf(p, v1.PodResizePending)
		if done := hasResources(p, patch.pod); done == pending || done != (patch.outcome == vpaDone) {
			t.Errorf("%s wants %+v, which is %q, and has %+v", p.Name, patch.pod.Spec.Containers,
				patch.outcome, p.Status)
		}
		if p.Annotations["vpaInPlaceUpdated"] != "true" {
			t.Errorf("%s lacks its annotation: %v", p.Name, p.Annotations)
		}
	}
	for _, text := range h.wrong {
		t.Error(text)
	}
}

// outcomesLocked counts the patches by outcome.
func (h *vpaHistory) outcomesLocked() map[string]int {
	out := map[string]int{}
	for _, patch := range h.patches {
		out[patch.outcome]++
	}
	return out
}

// String has the figures.
func (h *vpaHistory) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var took []time.Duration
	for _, patch := range h.patches {
		if patch.outcome == vpaDone && !patch.waited {
			took = append(took, patch.took.Round(time.Millisecond))
		}
	}
	slices.Sort(took)
	counts, outcomes := []string{}, h.outcomesLocked()
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		counts = append(counts, fmt.Sprintf("%d %q", outcomes[outcome], outcome))
	}
	return fmt.Sprintf("%d patches (%s), done after %v (p50), %v (p99), %v (most)", len(h.patches),
		strings.Join(counts, ", "), took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
}
