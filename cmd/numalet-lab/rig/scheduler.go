package rig

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

// scheduler chooses the devices of a pod's claims as kube-scheduler does: in the order of the
// claims, of their classes' names and of the classes' devices, it takes the first combination that
// is free and has what claims want in common. It does not know what the node's policy makes of it.
type scheduler struct {
	devices map[string][]claim.Device // by class
	taken   sets.Set[deviceKey]       // never written to
	picks   []pick
	chosen  []int // for each pick so far the place in the class's list
	steps   int
}

// pick is one device to choose.
type pick struct {
	class string
	claim int // index of the claim
	match string
	// first is the first pick of the claim. after is an earlier pick of equal rights, whose device
	// comes before this one's; -1: there is none.
	first, after int
}

// maxSteps bounds the search. Combinations that differ only in devices of one root and node are
// tried once, so that it is far more than real machines need.
const maxSteps = 100_000

// picksOf lists the devices to choose for the claims.
func picksOf(claims []ClaimSpec) (out []pick) {
	for i, c := range claims {
		first, counts := len(out), c.counts()
		for _, class := range slices.Sorted(maps.Keys(counts)) {
			for n := range counts[class] {
				p := pick{class: class, claim: i, match: c.Match, first: first, after: len(out) - 1}
				if n == 0 {
					p.after = -1
				}
				out = append(out, p)
			}
		}
		for before := i - 1; before >= 0; before-- {
			if same := claims[before]; same.Match == c.Match && maps.Equal(same.Devices, c.Devices) {
				out[first].after = slices.IndexFunc(out, func(p pick) bool { return p.claim == before })
				break
			}
		}
	}
	return out
}

// allocate returns the claims of the pod of an arrival with the devices that the scheduler chooses.
// If there are none, it returns the reason instead.
func (w *world) allocate(arrival int, l *lot) ([]claim.Use, *Reason) {
	if len(l.picks) == 0 {
		return nil, nil
	}
	s := scheduler{devices: w.published, taken: w.claimed, picks: l.picks}
	if class := s.short(); class != "" {
		return nil, &Reason{Reason: v1.PodReasonUnschedulable, Of: class}
	}
	if !s.choose(sets.New[deviceKey]()) {
		return nil, &Reason{Reason: v1.PodReasonUnschedulable}
	}
	uses := make([]claim.Use, len(l.Claims))
	for i, c := range l.Claims {
		uses[i] = claim.Use{Pod: c.Name, Claim: dra.Claim{Namespace: l.Pod.Namespace, Name: c.Name,
			UID: types.UID(fmt.Sprintf("%d-%s", arrival, c.Name))}}
	}
	for i := range s.picks {
		use := &uses[s.picks[i].claim]
		use.Devices = append(use.Devices, s.device(i))
	}
	return uses, nil
}

// device returns the device that was chosen for a pick.
func (s *scheduler) device(of int) claim.Device {
	return s.devices[s.picks[of].class][s.chosen[of]]
}

// short returns the first class that has too few free devices; "": none.
func (s *scheduler) short() string {
	wants := map[string]int{}
	for _, p := range s.picks {
		wants[p.class]++
	}
	for _, class := range slices.Sorted(maps.Keys(wants)) {
		free := 0
		for _, d := range s.devices[class] {
			if !s.taken.Has(keyOf(d)) {
				free++
			}
		}
		if free < wants[class] {
			return class
		}
	}
	return ""
}

// choose chooses the devices of the picks that are left; own has those chosen so far.
func (s *scheduler) choose(own sets.Set[deviceKey]) bool {
	if len(s.chosen) == len(s.picks) {
		return true
	}
	p, from := s.picks[len(s.chosen)], 0
	if p.after >= 0 {
		from = s.chosen[p.after] + 1
	}
	failed := map[[2]string]bool{}
	for at, d := range s.devices[p.class] {
		where, key := [2]string{d.Place.Root, d.Place.Nodes.String()}, keyOf(d)
		if at < from || failed[where] || s.taken.Has(key) || own.Has(key) || !s.matches(p, d) {
			continue
		}
		if s.steps++; s.steps > maxSteps {
			return false
		}
		s.chosen = append(s.chosen, at)
		own.Insert(key)
		if s.choose(own) {
			return true
		}
		own.Delete(key)
		s.chosen = s.chosen[:len(s.chosen)-1]
		failed[where] = true
	}
	return false
}

// matches reports whether the device has the attribute that the claim's devices must share.
func (s *scheduler) matches(p pick, d claim.Device) bool {
	if p.match == "" {
		return true
	}
	of := attributes[p.match]
	is := of(d.Place)
	return is != "" && (p.first == len(s.chosen) || of(s.device(p.first).Place) == is)
}
