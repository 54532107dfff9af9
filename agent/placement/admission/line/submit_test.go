package line

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// chooser is a scheduler that chooses devices.
const chooser = "chooser"

// submit has a pod come, with one container of these amounts. Other words are in wordOf, or "runs": its sandbox
// is alive.
func (w *world) submit(name, text string) {
	w.step(Submitted{Pod: w.pod(name, text), Adopt: slices.Contains(strings.Fields(text), "runs")})
}

// resize has a pod that was admitted ask for other amounts.
func (w *world) resize(name, text string) { w.step(Asked{Pod: w.pod(name, text)}) }

// pod returns a pod of such a text. One that has resources recorded has these, as after a restart.
func (w *world) pod(name, text string) *v1.Pod {
	words := strings.Fields(text)
	amounts := slices.DeleteFunc(slices.Clone(words), func(word string) bool {
		return word == "runs" || wordOf(word) != nil
	})
	container := podtest.Containers
	if slices.ContainsFunc(amounts, func(w string) bool { return strings.HasPrefix(w, "cpu=") }) {
		container = podtest.Guaranteed
	}
	options := []podtest.Option{podtest.UID(name), container("main " + strings.Join(amounts, " "))}
	for _, word := range words {
		options = append(options, wordOf(word))
	}
	return podtest.New(name, options...)
}

// wordOf returns what a word makes of a pod; nil: it is another word.
func wordOf(word string) podtest.Option {
	switch key, value, _ := strings.Cut(word, "="); key {
	case "critical":
		return podtest.Priority(2_000_000_000)
	case "static":
		return podtest.Source("file")
	case "isolated":
		return podtest.Annotations(podspec.AnnotationIsolated, "true")
	case "claims":
		return podtest.Claims("gpu=gpu-1")
	case "port": // of the host
		return func(p *v1.Pod) { p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}} }
	case "owner": // the controller
		return func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{
				{Kind: "ReplicaSet", UID: types.UID(value), Controller: ptr.To(true)},
			}
		}
	case "chooses": // GPUs that a scheduler has chosen
		return func(p *v1.Pod) {
			p.Spec.SchedulerName = chooser
			podtest.Annotations(gpu+"_container-main", value)(p)
		}
	}
	return nil
}

// claim says how it is with the claim of a pod: "unallocated", "undriven" (its driver is away) or "ready". It has
// the GPU of this UUID; "": it is not known which.
func (w *world) claim(pod types.UID, how, uuid string) {
	c := allocation.PodClaims{Uses: []claim.Use{{
		Pod: "gpu", Claim: dra.Claim{UID: "claim-of-" + pod},
		Devices: []claim.Device{{Driver: "gpu.example.com", Pool: "node", Name: "gpu-0", Place: claim.Place{UUID: uuid}}},
	}}}
	switch how {
	case "unallocated":
		c = allocation.PodClaims{Lack: claim.Lack{Reason: claim.ReasonWaitClaim, Why: "claim gpu is not allocated"}}
	case "undriven":
		c.Lack = claim.Lack{Reason: claim.ReasonWaitDriver, Why: "driver gpu.example.com is not registered"}
	case "ready":
	default:
		w.t.Fatalf("a claim is %q", how)
	}
	w.podClaims[pod] = c
	w.step(Poked{})
}

// amountsOf writes requests, but those that are one of each pod.
func amountsOf(of v1.ResourceList) string {
	var out []string
	for name, q := range of {
		if name != v1.ResourcePods {
			out = append(out, string(name)+" "+q.String())
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// shown writes the pods in the order of arrival, each with its state and what it has.
func (w *world) shown() (lines []string) {
	for _, e := range w.Order {
		line := e.Pod.Name + " " + e.State.String()
		if e.State == record.Behind {
			line += " " + string(e.After)
		}
		if e.Counts() || e.IsReserved() {
			line += ", " + []string{"has", "place", "claims"}[e.Has.Kind]
			held := allocation.HoldingsOf(e.Has.Pod)
			if !held.CPUs().IsEmpty() {
				line += " cpus " + held.CPUs().String()
			}
			for _, name := range slices.Sorted(maps.Keys(held.Devices())) {
				ids := held.Devices()[name].UnsortedList()
				slices.SortFunc(ids, devicemanager.CompareIDs)
				line += " " + strings.TrimPrefix(name, "example.com/") + " " + strings.Join(ids, ",")
			}
		}
		if wanted := e.Resize.Wanted; wanted != nil {
			line += ", wants " + amountsOf(wanted.Requests)
			if e.Resize.Promised {
				line += ", promised"
			}
		}
		lines = append(lines, line)
	}
	return lines
}
