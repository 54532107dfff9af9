package rig

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/numalet/numalet/topology/discover"
	"github.com/numalet/numalet/topology/topologytest"
)

// Every built-in mix fits every built-in machine with GPUs.
func TestMixesOnMachines(t *testing.T) {
	for _, machine := range discover.FixtureNames() {
		s := site(t, machine)
		if !strings.Contains(strings.Join(s.Resources(), " "), "/gpu") {
			s = site(t, machine, "gpu=2")
		}
		for _, mix := range MixNames() {
			stream := drawn(t, s, mix, Draw{Pods: 50, Seed: 1})
			if len(stream.Arrivals) != 50 || stream.end() <= 0 {
				t.Errorf("%s on %s: %d pods until %v",
					mix, machine, len(stream.Arrivals), stream.end())
			}
			o, err := Run(t.Context(), s, policies(t, "best-effort")[0], stream, Options{})
			if err != nil || o.Pods.Admitted == 0 {
				t.Errorf("%s on %s: %d admitted, %v", mix, machine, o.Pods.Admitted, err)
			}
		}
	}
}

// At a load of 1, the pods that would run at any time ask for all of the scarcest resource.
func TestLoad(t *testing.T) {
	s := site(t, "playground")
	for _, load := range []float64{0.5, 1, 3} {
		stream := drawn(t, s, "small-and-large", Draw{Pods: 40000, Seed: 3, Load: load})
		most := 0.0
		for _, resource := range []string{"cpu", "memory"} {
			held := 0.0
			for _, a := range stream.Arrivals {
				held += float64(stream.Shapes[a.Shape].demands()[resource]) * float64(a.Lifetime)
			}
			most = max(most, held/float64(stream.end())/float64(s.capacity(resource)))
		}
		if math.Abs(most-load)/load > 0.05 {
			t.Errorf("load %v offers %v", load, most)
		}
	}
}

func TestLifetimes(t *testing.T) {
	s := site(t, "playground")
	for distribution, want := range map[string]struct{ least, most time.Duration }{
		"fixed":       {time.Hour, time.Hour},
		"uniform":     {0, 2 * time.Hour},
		"exponential": {0, maxTime},
		"lognormal":   {0, maxTime},
	} {
		mix, err := ParseMix([]byte("name: m\ninterval: 1m\ntemplates:\n- name: a\n  lifetime: " +
			"{mean: 1h, distribution: " + distribution +
			"}\n  containers: [{limits: {cpu: 1, memory: 1Gi}}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		stream, err := s.Generate(mix, Draw{Pods: 20000, Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		sum := time.Duration(0)
		for _, a := range stream.Arrivals {
			if a.Lifetime < want.least || a.Lifetime > want.most {
				t.Fatalf("%s: %v", distribution, a.Lifetime)
			}
			sum += a.Lifetime / 20000
		}
		if sum < 57*time.Minute || sum > 63*time.Minute {
			t.Errorf("%s: the mean is %v", distribution, sum)
		}
		if end := stream.end(); end < 19500*time.Minute || end > 20500*time.Minute {
			t.Errorf("an interval of 1m: 20000 pods in %v", end)
		}
	}
}

// A stream that is written and read again stays the same.
func TestTraceRoundTrip(t *testing.T) {
	for _, mix := range []string{"inference", "elastic", "pooled", "testdata/pools.yaml"} {
		t.Run(mix, func(t *testing.T) { testRoundTrip(t, mix) })
	}
}

func testRoundTrip(t *testing.T, mix string) {
	t.Helper()
	s := site(t, "playground")
	stream := drawn(t, s, mix, Draw{Pods: 300, Seed: 2})
	stream.Arrivals[7].Lifetime = 0 // stays
	var first, second bytes.Buffer
	if err := WriteTrace(&first, stream); err != nil {
		t.Fatal(err)
	}
	again, err := s.ReadTrace(bytes.NewReader(first.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again.Arrivals, stream.Arrivals) {
		t.Error("other arrivals")
	}
	if err := WriteTrace(&second, again); err != nil || second.String() != first.String() {
		t.Errorf("written again it differs: %v", err)
	}
	for _, p := range policies(t, DefaultPolicies+",restricted+pod+pools") {
		a, err := Run(t.Context(), s, p, stream, Options{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := Run(t.Context(), s, p, again, Options{})
		if err != nil || asJSON(a) != asJSON(b) {
			t.Errorf("%s: %v\n%s\n%s", p.Name, err, asJSON(a), asJSON(b))
		}
	}
}

// All forms of a pod mean the same.
func TestTraceForms(t *testing.T) {
	s := small(t)
	want := []Arrival{
		{At: 500 * time.Millisecond, Lifetime: time.Minute},
		{At: time.Second, Lifetime: 2 * time.Second}, {At: 2 * time.Second},
	}
	for name, text := range map[string]string{
		"template": `
# comments and empty lines are passed over
{"template": "t", "containers": [{"limits": {"cpu": 1, "memory": "2Gi", "gpu": "1"}}]}
{"at": 0.5, "arrive": "a", "template": "t", "lifetime": 60}
{"at": 1, "arrive": "b", "template": "t"}
{"at": 2, "arrive": "c", "template": "t"}
{"at": 3, "depart": "b"}`,
		"containers": `{"at": 0.5, "arrive": "a", "containers": [{"limits": {"cpu": 1, "memory": "2Gi", "gpu": 1}}], "lifetime": 60}
{"at": 1, "arrive": "b", "containers": [{"limits": {"cpu": 1, "memory": "2Gi", "gpu": 1}}]}
{"at": 2, "arrive": "c", "containers": [{"limits": {"cpu": 1, "memory": "2Gi", "gpu": 1}}]}
{"at": 3, "depart": "b"}`,
		"manifest": `{"at": 0.5, "arrive": "a", "lifetime": 60, "manifest": {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "x", "resources": {"limits": {"cpu": "1", "memory": "2Gi", "example.com/gpu": "1"}}}]}}}
{"at": 1, "arrive": "b", "manifest": {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "x", "resources": {"limits": {"cpu": "1", "memory": "2Gi", "example.com/gpu": "1"}}}]}}}
{"at": 2, "arrive": "c", "manifest": {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "x", "resources": {"limits": {"cpu": "1", "memory": "2Gi", "example.com/gpu": "1"}}}]}}}
{"at": 3, "depart": "b"}`,
		"csv": "\xef\xbb\xbfat,pod,lifetime,cpu,memory,gpu\n0.5,a,60,1,2Gi,1\n1,b,,1,2Gi,1\n" +
			"2, c ,,1,2Gi,1\n3,b,depart,,,\n",
	} {
		stream, err := s.ReadTrace(strings.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !reflect.DeepEqual(stream.Arrivals, want) || len(stream.Shapes) != 1 {
			t.Errorf("%s: %d shapes, %v", name, len(stream.Shapes), stream.Arrivals)
		}
		demands := stream.Shapes[0].demands()
		if demands["cpu"] != 1000 || demands["memory"] != 2<<30 || demands["example.com/gpu"] != 1 {
			t.Errorf("%s: %v", name, demands)
		}
	}
}

func TestBadTraces(t *testing.T) {
	const good = `{"at": 1, "arrive": "a", "containers": [{"limits": {"cpu": 1}}]}` + "\n"
	s := small(t)
	for _, test := range []struct{ text, want string }{
		{"", "no pod arrives in it"},
		{good + "nonsense", "line 2: not JSON"},
		{good + `{"at": 2, "arive": "b"}`, `line 2: unknown field "arive"`},
		{good + `{"at": 0, "depart": "a"}`, "line 2: it is at 0 and the line before at 1; sort"},
		{good + `{"at": 2, "depart": "b"}`, "line 2: b departs and has not arrived"},
		{good + `{"at": 2}`, `line 2: it needs one of "arrive" and "depart"`},
		{good + `{"arrive": "b"}`, `line 2: "at" is missing`},
		{good + `{"at": -2, "arrive": "b"}`, `line 2: "at" is -2`},
		{good + good, "line 2: a arrives again"},
		{`{"at": 2, "arrive": "b"}`, "line 1: b: it has no containers"},
		{`{"at": 2, "arrive": "b", "template": "x"}`,
			"line 1: b: no line before says what template x is"},
		{`{"template": "x", "containers": [{"limits": {"cpu": "many"}}]}`,
			`line 1: template x: containers[0]: limits: cpu: "many" is no amount`},
		{`{"template": "x", "containers": [{"limits": {"gpu": "1.5"}}]}`,
			"devices come as a whole"},
		{`{"at": 2, "arrive": "b", "manifest": {"spec": {}}}`,
			"line 1: b: the manifest has no spec.containers"},
		{"at,pod,cpu\n1,a\n", "line 2: 2 fields, and the header has 3 (at,pod,cpu)"},
		{"at,pod,cpu\nsoon,a,1\n", `line 2: at: "soon" is not a number of seconds`},
		{"time,pod,cpu\n1,a,1\n",
			`line 1: the first line is neither JSON ({...}) nor a header with the column "at"`},
		{"at,pod,cpu,cpu\n", `line 1: column 4 of the header, "cpu", is empty or there twice`},
		{"at,pod,cpu\n\n1,a,-1\n", "line 3: a: containers[0]: limits: cpu: -1 is negative"},
		{"at,pod,\"cpu\n1,a,-1\n", "line 1: neither JSON nor CSV"},
		{good + strings.Repeat("x", maxLine+1), "line 2: longer than"},
	} {
		_, err := s.ReadTrace(strings.NewReader(test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.80q: %v\nwant %s", test.text, err, test.want)
		}
	}
}

func TestBadMixes(t *testing.T) {
	const rest = "\n  containers: [{limits: {cpu: 1, memory: 1Gi}}]\n"
	s := small(t)
	for _, test := range []struct{ text, want string }{
		{"", "no templates"},
		{"name: [", "not YAML"},
		{"name: m\nlode: 1", `unknown field "lode"; "numalet rig mixes NAME"`},
		{"name: m", "no templates"},
		{"templates:\n- name: a" + rest, "template a: lifetime is missing"},
		{"templates:\n- name: a\n  lifetime: 5" + rest, "5 is no duration"},
		{"templates:\n- name: a\n  lifetime: 5x" + rest, `"5x" is no duration`},
		{"templates:\n- name: a\n  lifetime: {mean: 1h, distribution: odd}" + rest,
			`distribution "odd" is none of`},
		{"templates:\n- name: a\n  lifetime: {mean: 1h, median: 1h}" + rest,
			`unknown field "median"`},
		{"templates:\n- name: a\n  weight: 0\n  lifetime: 1h" + rest, "all weights are 0"},
		{"templates:\n- name: a\n  weight: -1\n  lifetime: 1h" + rest, "weight is 0 to"},
		{"templates:\n- name: a\n  lifetime: 1h\n", "template a: it has no containers"},
		{"templates:\n- name: a\n  lifetime: 1h\n  containers: [{}]\n", "ask for nothing"},
		{"templates:\n- name: a\n  lifetime: 1h\n  containers: [{limits: {cpu: 0%}}]\n",
			"no share of a node"},
		{"templates:\n- name: a\n  lifetime: 1h\n  containers: [{limits: {nic: 1}}]\n",
			"--devices nic=2"},
		{"templates:\n- name: a\n  lifetime: 1h\n" +
			"  containers: [{limits: {cpu: 1}, requests: {cpu: 2}}]\n",
			"the request of cpu, 2, is more than the limit, 1"},
		{"templates:\n- name: a\n  lifetime: 1h\n  containers: [{limits: {hugepages-1Gi: 1Gi}}]\n",
			"of which the machine has none"},
		{"templates:\n- name: a\n  lifetime: 1h\n" +
			"  containers: [{limits: {cpu: 1}, restartPolicy: Never}]\n",
			"only Always has a meaning"},
		{"templates:\n- {name: a, lifetime: 1h, containers: [{}]}\n" +
			"- {name: a, lifetime: 1h, containers: [{}]}",
			"there twice"},
	} {
		mix, err := ParseMix([]byte(test.text))
		if err == nil {
			_, err = s.Generate(mix, Draw{Pods: 1})
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v\nwant %s", test.text, err, test.want)
		}
	}
	_, err := OpenMix("nowhere")
	if err == nil || !strings.Contains(err.Error(), "cpu-only, elastic, inference") {
		t.Errorf("a mix that is not there: %v", err)
	}
}

// A share of a node is whole cores, whole devices or whole MiB, and at least one.
func TestShares(t *testing.T) {
	s := site(t, "playground") // per node 16 CPUs with 2 threads a core, 2 GPUs, 512 pages of 2 MiB
	for _, test := range []struct{ name, text, want string }{
		{"cpu", "50%", "8"}, {"cpu", "20%", "4"}, {"cpu", "1%", "2"}, {"cpu", "150%", "24"},
		{"gpu", "100%", "2"}, {"gpu", "10%", "1"}, {"gpu", "400%", "8"},
		{"hugepages-2Mi", "10%", "102Mi"}, {"memory", "50%", "30208Mi"}, {"cpu", "1500m", "1500m"},
	} {
		q, err := s.amount(s.Resource(test.name), test.text)
		if err != nil || q.String() != test.want {
			t.Errorf("%s %s: %s, %v; want %s", test.text, test.name, q.String(), err, test.want)
		}
	}
}

func TestSites(t *testing.T) {
	m := topologytest.Fixture(t, "playground")
	for entry, want := range map[string]string{
		"gpu=1":             "example.com/nic 4, nvidia.com/gpu 4",
		"fpga=2@1,3":        "example.com/fpga 4, example.com/nic 4, nvidia.com/gpu 8",
		"vendor.io/nic=1":   "example.com/nic 4, nvidia.com/gpu 8, vendor.io/nic 4",
		"vendor.io/a=gpu":   "example.com/nic 4, nvidia.com/gpu 8, vendor.io/a 8",
		"gpu":               "error: not understood",
		"gpu=0":             "error: the count is 1 to",
		"gpu=1@9":           "error: no node 9: the machine has the nodes 0-3",
		"gpu=1@x":           "error: parse node list",
		"gpu=tpu":           `error: the machine shows no PCI device of kind "tpu"`,
		"kubernetes.io/a=":  "error: not understood",
		"kubernetes.io/a=1": "error: \"kubernetes.io/a\" is not the name",
	} {
		s, err := NewSite(SiteConfig{Machine: m, Devices: []string{entry}})
		got := ""
		if err != nil {
			got = "error: " + strings.TrimPrefix(err.Error(), "devices \""+entry+"\": ")
		} else {
			var parts []string
			for _, d := range s.Describe("").Devices {
				parts = append(parts, d.Resource+" "+string(rune('0'+d.Count)))
			}
			got = strings.Join(parts, ", ")
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s\nwant %s", entry, got, want)
		}
	}
	for reserved, want := range map[string]string{"x": "write a list like", "400": "online are"} {
		_, err := NewSite(SiteConfig{Machine: m, ReservedCPUs: reserved})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("reserved %s: %v", reserved, err)
		}
	}
}

func TestPolicies(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{DefaultPolicies, "none best-effort restricted single-numa-node"},
		{"restricted/none+pod/container",
			"restricted+pod restricted+container none+pod none+container"},
		{"pod+full-pcpus-only, b=none", "pod+full-pcpus-only b"},
		{"x=restricted+pod/container", "x-1 x-2"},
		{"strict",
			`error: policies "strict": "strict" is not a word of a policy; the words are ` +
				`none, best-effort`},
		{"", `error: policies "": "" is not a word`},
		{"none+restricted",
			`error: policies "none+restricted": "none" and "restricted" say the same thing twice`},
		{"none,none", `error: policies: "none" is there twice`},
		{"best-effort+align-by-socket/none",
			`error: policies "best-effort+align-by-socket/none": "best-effort" and "none"`},
		{"full-pcpus-only+distribute-cpus-across-cores",
			`error: policies "full-pcpus-only+distribute-cpus-across-cores": ` +
				"invalid configuration: cpuManagerPolicyOptions.full-pcpus-only: Forbidden: " +
				"cannot be used with distribute-cpus-across-cores"},
		{"restricted/single-numa-node+align-by-socket",
			`error: policies "restricted/single-numa-node+align-by-socket": ` +
				"invalid configuration: cpuManagerPolicyOptions.align-by-socket: Forbidden: " +
				"cannot be used with topologyManagerPolicy single-numa-node"},
		{"cpu-none+full-pcpus-only",
			"error: policies \"cpu-none+full-pcpus-only\": cpu-none has no options"},
		{strings.Repeat("none/", 70) + "none", "error: policies"},
		{"none+pod+cpu-static+align-by-socket", "none+pod+cpu-static+align-by-socket"},
		{"restricted+prefer-closest-numa-nodes", "restricted+prefer-closest-numa-nodes"},
		{"restricted+pod+pools", "restricted+pod+pools"},
		{"pools+pools", `error: policies "pools+pools": "pools" and "pools" say the same thing twice`},
	} {
		got := ""
		parsed, err := ParsePolicies(test.text)
		if err != nil {
			got = "error: " + err.Error()
		} else {
			var names []string
			for _, p := range parsed {
				names = append(names, p.Name)
			}
			got = strings.Join(names, " ")
		}
		if got != test.want &&
			(!strings.HasPrefix(test.want, "error") || !strings.HasPrefix(got, test.want)) {
			t.Errorf("%.60s: %s\nwant %s", test.text, got, test.want)
		}
	}
}

// Averages over parts of time equal a plain sum over small steps.
func TestGauges(t *testing.T) {
	g := newGauges(1, 12*time.Second)
	steps := []struct {
		at    time.Duration
		value float64
	}{{0, 2}, {1500 * time.Millisecond, 4}, {1500 * time.Millisecond, 5}, {7 * time.Second, 0},
		{30 * time.Second, 9}}
	for _, s := range steps {
		g.advance(s.at)
		g.values[0] = s.value
	}
	g.advance(40 * time.Second)
	line := g.line(0)
	for i, want := range map[int]float64{0: 2, 14: 2, 15: 5, 69: 5, 70: 0, 119: 0} {
		if math.Abs(line[i]-want) > 1e-4 {
			t.Errorf("part %d: %v, want %v", i, line[i], want)
		}
	}
	if want := (1.5*2 + 5.5*5) / 12; math.Abs(g.mean(0)-want) > 1e-4 {
		t.Errorf("mean %v, want %v", g.mean(0), want)
	}
}

func TestFragmentation(t *testing.T) {
	for _, test := range []struct {
		free    []int
		largest int
		want    float64
	}{
		{[]int{8, 8}, 8, 0}, {[]int{4, 4}, 8, 0.5}, {[]int{8, 0}, 8, 0}, {[]int{0, 0}, 8, 0},
		{[]int{1, 1, 1, 1}, 8, 0.75}, {[]int{2, 6}, 8, 0.25}, {[]int{3, 0}, 8, 0},
	} {
		s := shelf{free: test.free, largest: test.largest}
		if got := s.fragmentation(); got != test.want {
			t.Errorf("%v: %v, want %v", test.free, got, test.want)
		}
	}
	d := deviceShelf{shelf: shelf{free: []int{2, 1, 0}, largest: 2}, total: 6, needs: 4}
	if got := d.stranded([]int{3, 4, 0}); got != 2.0/6 {
		t.Errorf("stranded: %v", got)
	}
}
