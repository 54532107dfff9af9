package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/numalet/numalet/cri"
)

// Reads of one pod begin, commit and abort in any order: the cache holds the newest committed read,
// and nothing once the pod is gone and no read is in progress.
func TestCacheKeepsTheNewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type pending struct {
			r   reading
			pod cri.Pod
		}
		c := newCache()
		base := time.Unix(1000, 0)
		var open []pending
		var newest *pending // oracle
		clock := 0
		later := func(a, b *pending) bool {
			if !a.pod.ReadAt.Equal(b.pod.ReadAt) {
				return a.pod.ReadAt.After(b.pod.ReadAt)
			}
			return a.r.seq > b.r.seq
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch {
			case len(open) == 0 || rapid.Bool().Draw(t, "begin"):
				clock += rapid.IntRange(0, 1).Draw(t, "tick") // equal times happen
				pod := cri.Pod{UID: "p", ReadAt: base.Add(time.Duration(clock))}
				if rapid.Bool().Draw(t, "present") {
					id := fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "id"))
					pod.Containers = []cri.Container{{ID: id, State: cri.ContainerRunning}}
					pod.Sandboxes = []cri.Sandbox{{Ready: id == "0"}}
				}
				open = append(open, pending{c.begin("p"), pod})
			default:
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				p := open[i]
				open = append(open[:i], open[i+1:]...)
				if rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
					c.abort(p.r)
					continue
				}
				if newest == nil || later(&p, newest) {
					newest = &p
				}
				got, _ := c.commit(p.r, p.pod)
				if len(open) > 0 && !got.ReadAt.Equal(newest.pod.ReadAt) {
					t.Fatalf("commit gave the read of %v, newest is %v",
						got.ReadAt, newest.pod.ReadAt)
				}
				if len(open) == 0 && len(newest.pod.Containers) == 0 {
					if len(c.entries) != 0 {
						t.Fatalf("entries are left: %+v", c.entries["p"])
					}
					newest = nil
				}
			}
			got, ok := c.get("p")
			want := newest != nil && len(newest.pod.Containers) > 0
			if ok != want || (ok && !sameFacts(got, newest.pod)) {
				t.Fatalf("cache has %+v (%t), newest is %+v", got, ok, newest)
			}
			count, has := c.counts(), recount(c.all())
			if !maps.Equal(count.containers, has.containers) || count.pods != has.pods {
				t.Fatalf("the cache counts %+v, has %+v", count, has)
			}
		}
	})
}

func recount(pods []cri.Pod) census {
	c := census{containers: map[cri.ContainerState]int{}}
	for _, p := range pods {
		c.count(p, 1)
	}
	return c
}

func TestOutdated(t *testing.T) {
	const running, exited = cri.ContainerRunning, cri.ContainerExited
	pod := func(ready bool, states ...cri.ContainerState) cri.Pod {
		p := cri.Pod{UID: "p", Sandboxes: []cri.Sandbox{{ID: "s", Ready: ready}}}
		for i, st := range states {
			p.Containers = append(p.Containers, cri.Container{ID: fmt.Sprint(i), State: st})
		}
		return p
	}
	swapped := pod(true, running, exited)
	slices.Reverse(swapped.Containers)
	at := time.Unix(1000, 0)
	for _, c := range []struct {
		name   string
		cached cri.Pod
		listed []cri.Pod
		want   bool
	}{
		{"same", pod(true, running), []cri.Pod{pod(true, running)}, false},
		{"other order", pod(true, running, exited), []cri.Pod{swapped}, false},
		{"container exited", pod(true, running), []cri.Pod{pod(true, exited)}, true},
		{"sandbox not ready", pod(true, running), []cri.Pod{pod(false, running)}, true},
		{"one more", pod(true, running), []cri.Pod{pod(true, running, exited)}, true},
		{"one less", pod(true, running, exited), []cri.Pod{pod(true, running)}, true},
		{"gone", pod(true, running), nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cache := newCache()
			early := cache.beginList()
			r := cache.begin("p")
			c.cached.ReadAt = at
			cache.commit(r, c.cached)
			if got := cache.outdated(cache.beginList(), at, c.listed); (len(got) == 1) != c.want {
				t.Errorf("outdated = %v, want one: %t", got, c.want)
			}
			if got := cache.outdated(early, at, c.listed); len(got) != 0 {
				t.Errorf("outdated = %v by a listing older than the cache, want none", got)
			}
			cache.abort(cache.begin("p"))
			if got := cache.outdated(early, at, c.listed); len(got) != 1 {
				t.Errorf("outdated = %v after a failed read, want one", got)
			}
		})
	}
}
