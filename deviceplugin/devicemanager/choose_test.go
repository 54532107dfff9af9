package devicemanager

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/topology"
)

// parseDevices reads devices like "a@0 b@0,1 c! d": ids, their nodes, ! for unhealthy.
func parseDevices(t *testing.T, text string) []*Device {
	t.Helper()
	var devices []*Device
	for word := range strings.FieldsSeq(text) {
		id, nodes, _ := strings.Cut(strings.TrimSuffix(word, "!"), "@")
		set, err := topology.ParseNodeSet(nodes)
		if err != nil {
			t.Fatal(err)
		}
		devices = append(devices,
			&Device{ID: id, Healthy: !strings.HasSuffix(word, "!"), Nodes: set})
	}
	l, _ := arrange(devices, defects{})
	return l.devices
}

func TestChoose(t *testing.T) {
	const twoNodes = "g-0@0 g-1@0 g-2@0 g-3@0 g-4@1 g-5@1 g-6@1 g-7@1"
	none := topology.Hint{Any: true}
	on := func(nodes ...topology.NodeID) topology.Hint {
		return topology.Hint{Nodes: topology.NewNodeSet(nodes...)}
	}
	for name, tc := range map[string]struct {
		devices                       string
		n                             int
		hint                          topology.Hint
		taken, reusable, must, advice string
		want                          string
		err                           string
		// asked is the question to the plugin, "available/must"; "" if it is not asked.
		asked string
	}{
		"natural order without a hint": {
			devices: "g-10 g-9 g-1", n: 2, hint: none, want: "g-1 g-9", asked: "g-1 g-9 g-10/",
		},
		"aligned": {
			devices: twoNodes, n: 2, hint: on(1), want: "g-4 g-5", asked: "g-4 g-5 g-6 g-7/",
		},
		"all aligned leave no choice": {
			devices: twoNodes, n: 4, hint: on(1), want: "g-4 g-5 g-6 g-7",
		},
		"emptier node first": {devices: twoNodes, n: 2, hint: on(0, 1), taken: "g-4 g-5",
			want: "g-6 g-7", asked: "g-0 g-1 g-2 g-3 g-6 g-7/"},
		"unaligned after aligned": {devices: twoNodes, n: 5, hint: on(1),
			want: "g-0 g-4 g-5 g-6 g-7", asked: "g-0 g-1 g-2 g-3 g-4 g-5 g-6 g-7/g-4 g-5 g-6 g-7"},
		"without a node last": {
			devices: "a b@0 c@1", n: 2, hint: on(1), want: "b c", asked: "a b c/c",
		},
		"device of two nodes": {devices: "a@0 b@0,1 c@1", n: 1, hint: on(1), taken: "c", want: "b"},
		"reusable first": {devices: twoNodes, n: 2, hint: on(0, 1), taken: "g-3 g-7",
			reusable: "g-7", want: "g-0 g-7", asked: "g-0 g-1 g-2 g-4 g-5 g-6 g-7/g-7"},
		"reusable ones suffice": {
			devices: twoNodes, n: 1, hint: none, taken: "g-6 g-7", reusable: "g-6 g-7", want: "g-6",
			asked: "g-6 g-7/",
		},
		"advice among the reusable ones": {devices: twoNodes, n: 2, hint: none,
			taken: "g-1 g-6 g-7", reusable: "g-1 g-6 g-7", advice: "g-0 g-7 g-6", want: "g-6 g-7",
			asked: "g-1 g-6 g-7/"},
		"included ones before reusable": {devices: twoNodes, n: 2, hint: none, taken: "g-1 g-5 g-6",
			reusable: "g-1 g-6", must: "g-5", want: "g-1 g-5", asked: "g-1 g-5 g-6/g-5"},
		"advice followed": {
			devices: twoNodes, n: 2, hint: on(1), advice: "g-5 g-7", want: "g-5 g-7",
			asked: "g-4 g-5 g-6 g-7/",
		},
		"advice with foreign, taken, unhealthy and unaligned ids": {devices: twoNodes + " g-8@1!",
			n: 2, hint: on(1), taken: "g-4",
			advice: "x g-4 g-8 g-0 g-7", want: "g-5 g-7", asked: "g-5 g-6 g-7/"},
		"advice too long": {
			devices: twoNodes, n: 1, hint: on(1), advice: "g-7 g-6 g-5",
			want: "g-5", asked: "g-4 g-5 g-6 g-7/",
		},
		"nothing asked for": {devices: twoNodes, hint: none},
		"too few": {devices: twoNodes, n: 3, hint: none, taken: "g-0 g-1 g-2 g-3 g-4 g-5",
			err: "requested number of devices unavailable for example.com/gpu. Requested: 3, " +
				"Available: 2"},
		"too few healthy": {devices: "a b!", n: 2, hint: none,
			err: "requested number of devices unavailable for example.com/gpu. Requested: 2, " +
				"Available: 1"},
		"too few beside the included": {devices: "a b c!", n: 3, hint: none, taken: "a", must: "a",
			err: "requested number of devices unavailable for example.com/gpu. Requested: 2, " +
				"Available: 1"},
		"none healthy": {devices: "a! b!", n: 1, hint: none,
			err: "no healthy devices present; cannot allocate unhealthy devices example.com/gpu"},
		"no device": {n: 1, hint: none,
			err: "no healthy devices present; cannot allocate unhealthy devices example.com/gpu: " +
				"its device plugin lists no devices"},
		"held ones unhealthy": {devices: "a b!", n: 1, hint: none, must: "b",
			err: "previously allocated devices are no longer healthy; cannot allocate unhealthy " +
				"devices example.com/gpu"},
		"held ones gone": {devices: "a", n: 1, hint: none, must: "z",
			err: "previously allocated devices are no longer healthy; cannot allocate unhealthy " +
				"devices example.com/gpu"},
		"more held than asked for": {devices: "a b", n: 1, hint: none, must: "a b",
			err: "example.com/gpu: 2 devices must be included in a choice of 1"},
	} {
		t.Run(name, func(t *testing.T) {
			req := Request{
				Resource: Resource{
					Name: gpu, Devices: parseDevices(t, tc.devices), Connected: true,
					Options: Options{Preferred: true},
				},
				N: tc.n, Hint: tc.hint, Taken: sets.New(strings.Fields(tc.taken)...),
				Reusable: strings.Fields(tc.reusable), MustInclude: strings.Fields(tc.must),
				Advice: strings.Fields(tc.advice),
			}
			got, err := Choose(req)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("error %v, want %s", err, tc.err)
				}
			} else if err != nil || !slices.Equal(got, strings.Fields(tc.want)) {
				t.Errorf("chose %q, %v; want %s", got, err, tc.want)
			}
			asked := ""
			if ask, wanted := AdviceWanted(req); wanted {
				asked = strings.Join(ask.Available, " ") + "/" + strings.Join(ask.MustInclude, " ")
				if ask.Size != tc.n || ask.Resource != gpu {
					t.Errorf("asked %+v", ask)
				}
			}
			if asked != tc.asked {
				t.Errorf("asked %q, want %q", asked, tc.asked)
			}
			req.Resource.Options.Preferred = false
			if _, wanted := AdviceWanted(req); wanted {
				t.Error("a plugin that does not offer advice is asked")
			}
		})
	}
}

// requests draws requests with small numbers, so that all kinds of shortage occur.
func requests(t *rapid.T) Request {
	req := Request{
		Resource: Resource{Name: gpu, Connected: true, Options: Options{Preferred: true}},
		N:        rapid.IntRange(0, 6).Draw(t, "n"),
		Taken:    sets.New[string](),
		Hint:     topology.Hint{Any: rapid.Bool().Draw(t, "any")},
	}
	if !req.Hint.Any {
		req.Hint.Nodes = someNodes(t, "hint", 4)
	}
	for i := range rapid.IntRange(0, 12).Draw(t, "devices") {
		d := &Device{
			ID: fmt.Sprintf("d-%d", i), Healthy: rapid.IntRange(0, 4).Draw(t, "healthy") > 0,
			Nodes: someNodes(t, "nodes", 2),
		}
		req.Resource.Devices = append(req.Resource.Devices, d)
		switch rapid.IntRange(0, 9).Draw(t, "use") {
		case 0, 1:
			req.Taken.Insert(d.ID)
		case 2:
			req.Taken.Insert(d.ID)
			req.Reusable = append(req.Reusable, d.ID)
			if rapid.Bool().Draw(t, "advised") {
				req.Advice = append(req.Advice, d.ID)
			}
		case 3:
			req.Taken.Insert(d.ID)
			if d.Healthy && len(req.MustInclude) < req.N {
				req.MustInclude = append(req.MustInclude, d.ID)
			}
		case 4, 5:
			req.Advice = append(req.Advice, d.ID)
		}
	}
	return req
}

func someNodes(t *rapid.T, label string, most int) topology.NodeSet {
	ids := rapid.SliceOfN(rapid.IntRange(0, 3), 0, most).Draw(t, label)
	var set topology.NodeSet
	for _, id := range ids {
		set = set.Union(topology.NewNodeSet(topology.NodeID(id)))
	}
	return set
}

// class ranks a device for a request, as an oracle of Choose: devices of a lower class are used up
// before any of a higher one. Advice ranks within reusable devices, within aligned ones and within
// the rest.
func class(req Request, d *Device) int {
	aligned := !req.Hint.Any && !d.Nodes.Intersect(req.Hint.Nodes).IsEmpty()
	advised := slices.Contains(req.Advice, d.ID)
	switch {
	case slices.Contains(req.MustInclude, d.ID):
		return 0
	case !d.Healthy:
		return -1
	case slices.Contains(req.Reusable, d.ID) && advised:
		return 1
	case slices.Contains(req.Reusable, d.ID):
		return 2
	case req.Taken.Has(d.ID):
		return -1
	case aligned && advised:
		return 3
	case aligned:
		return 4
	case advised:
		return 5
	case req.Hint.Any || !d.Nodes.IsEmpty():
		return 6
	default:
		return 7
	}
}

func TestChooseAgainstClasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := requests(t)
		byClass := map[int]int{}
		total, anyHealthy := 0, false
		for _, d := range req.Resource.Devices {
			anyHealthy = anyHealthy || d.Healthy
			if c := class(req, d); c >= 0 {
				byClass[c]++
				total++
			}
		}
		got, err := Choose(req)
		if possible := req.N == 0 || anyHealthy && total >= req.N; possible != (err == nil) {
			t.Fatalf("chose %q, %v; %d devices can be had for %d", got, err, total, req.N)
		}
		if err != nil {
			return
		}
		if len(got) != req.N || !slices.IsSortedFunc(got, CompareIDs) ||
			len(slices.Compact(slices.Clone(got))) != req.N {
			t.Errorf("chose %q of %d", got, req.N)
		}
		chosen := map[int]int{}
		for _, id := range got {
			i := slices.IndexFunc(req.Resource.Devices, func(d *Device) bool { return d.ID == id })
			chosen[class(req, req.Resource.Devices[i])]++
		}
		left := req.N
		for c := 0; c <= 7; c++ {
			if want := min(left, byClass[c]); chosen[c] != want {
				t.Errorf("chose %q: %d of class %d, want %d", got, chosen[c], c, want)
			}
			left -= min(left, byClass[c])
		}
	})
}

func TestChoiceDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := requests(t)
		want, wantErr := Choose(req)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		shuffle := func(n int, swap func(i, j int)) { r.Shuffle(n, swap) }
		for _, ids := range [][]string{req.Advice, req.Reusable, req.MustInclude} {
			shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		}
		got, err := Choose(req)
		if !slices.Equal(got, want) || (err == nil) != (wantErr == nil) {
			t.Errorf("chose %q, %v; in another order %q, %v", want, wantErr, got, err)
		}
	})
}

func TestAdviceIsAskedForTheOpenPart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := requests(t)
		req.Advice = nil
		ask, wanted := AdviceWanted(req)
		if !wanted {
			return
		}
		available, must := sets.New(ask.Available...), sets.New(ask.MustInclude...)
		if !available.IsSuperset(must) || len(available) <= ask.Size || len(must) >= ask.Size {
			t.Fatalf("asked %+v", ask)
		}
		// Any advice within the question is followed to the letter.
		open := sortedIDs(available.Difference(must).UnsortedList())
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		r.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
		req.Advice = slices.Concat(ask.MustInclude, open[:ask.Size-len(must)])
		got, err := Choose(req)
		if err != nil || !slices.Equal(got, sortedIDs(req.Advice)) {
			t.Errorf("advised %q, chose %q, %v", req.Advice, got, err)
		}
	})
}
