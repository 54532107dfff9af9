package fit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/placement/admission"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/agent/placement/fit"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// twoNodes has four CPUs on each of two NUMA nodes; the tests reserve CPU 0.
const twoNodes = `name: rig
nodes:
- {id: 0, cpus: "0-3", memory: 16Gi}
- {id: 1, cpus: "4-7", memory: 16Gi}
`

// pod returns a Guaranteed pod with containers such as "name cpu=2 example.com/gpu=1".
func pod(name string, containers ...string) *v1.Pod {
	return podtest.New(name, podtest.Guaranteed(containers...))
}

// gpus returns a resource with a device on each of the nodes. prefers is set if its plugin has
// preferences.
func gpus(prefers bool, nodes ...topology.NodeID) devicemanager.Inventory {
	r := devicemanager.Resource{Name: "example.com/gpu", Connected: true,
		Options: devicemanager.Options{Preferred: prefers}}
	for i, n := range nodes {
		r.Devices = append(r.Devices, &devicemanager.Device{
			ID: fmt.Sprintf("gpu-%d", i), Healthy: true, Nodes: topology.NewNodeSet(n),
		})
	}
	return devicemanager.Inventory{Resources: map[string]devicemanager.Resource{r.Name: r}}
}

// offline returns a node that does not run: twoNodes with these flags.
func offline(t *testing.T, inventory devicemanager.Inventory, state allocation.State,
	args ...string) decide.Snapshot {
	t.Helper()
	file := filepath.Join(t.TempDir(), "machine.yaml")
	if err := os.WriteFile(file, []byte(twoNodes), 0o600); err != nil {
		t.Fatal(err)
	}
	set := pflag.NewFlagSet("fit", pflag.ContinueOnError)
	flags := config.AddFlags(set)
	set.VisitAll(func(f *pflag.Flag) { f.Deprecated = "" }) // without warnings
	args = append([]string{
		"--topology-from", file, "--cpu-manager-policy=static", "--reserved-cpus=0",
	}, args...)
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(set, flags)
	if err != nil {
		t.Fatal(err)
	}
	s, err := placement.Offline(cfg, inventory, state)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func place(t *testing.T, s decide.Snapshot, q fit.Question) fit.Answer {
	t.Helper()
	q.Copies = max(q.Copies, 1)
	a, err := fit.Place(t.Context(), s, q)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// brief formats an answer in one line: the outcome for each pod.
func brief(a fit.Answer) string {
	words := []string{fmt.Sprintf("fits=%v %d/%d", a.Fits, a.Copies, a.Asked)}
	for _, p := range a.Pods {
		r := p.Record
		text := fmt.Sprintf("%d:%s=%s%s", p.Copy, r.Subject.Name, r.Outcome, r.Reason)
		for _, c := range p.Containers {
			text += fmt.Sprintf("[%s %s %v @%s %v]", c.Name, c.CPUs, c.Devices["example.com/gpu"],
				c.NUMANodes, c.Aligned != nil && *c.Aligned)
		}
		words = append(words, text)
	}
	return strings.Join(words, " ")
}

func TestPlace(t *testing.T) {
	single := "--topology-manager-policy=single-numa-node"
	held := allocation.State{Pods: map[types.UID]allocation.Pod{
		"old": {UID: "old", Containers: map[string]allocation.Container{
			"main": {allocation.CPUs(cpuset.New(1, 2, 3))},
		}},
	}}
	for name, tt := range map[string]struct {
		args      []string
		inventory devicemanager.Inventory
		state     allocation.State
		question  fit.Question
		want      string
	}{
		"one": {
			args: []string{single}, inventory: gpus(false, 0, 1),
			question: fit.Question{Pods: []*v1.Pod{pod("a", "main cpu=2 example.com/gpu=1")}},
			want:     "fits=true 1/1 1:a=Admit[main 1-2 [gpu-0] @0 true]",
		},
		"apart": {
			inventory: gpus(false, 1),
			question:  fit.Question{Pods: []*v1.Pod{pod("a", "main cpu=2 example.com/gpu=1")}},
			want:      "fits=true 1/1 1:a=Admit[main 1-2 [gpu-0] @0-1 false]",
		},
		"nothing of its own": {
			question: fit.Question{Pods: []*v1.Pod{pod("a", "main cpu=1500m")}},
			want:     "fits=true 1/1 1:a=Admit",
		},
		"the policy says no": {
			args: []string{single}, inventory: gpus(false, 0, 1),
			question: fit.Question{Pods: []*v1.Pod{pod("a", "main example.com/gpu=2 cpu=1")}},
			want:     "fits=false 0/1 1:a=RejectTopologyAffinityError",
		},
		"each beside those before it that fit": {
			question: fit.Question{Pods: []*v1.Pod{
				pod("a", "main cpu=4"), pod("b", "main cpu=4"), pod("c", "main cpu=3"),
			}},
			want: "fits=false 0/1 1:a=Admit[main 4-7 [] @1 true] " +
				"1:b=RejectUnexpectedAdmissionError 1:c=Admit[main 1-3 [] @0 true]",
		},
		"copies": {
			question: fit.Question{Pods: []*v1.Pod{pod("a", "main cpu=3")}, Copies: 2},
			want:     "fits=true 2/2 1:a=Admit[main 1-3 [] @0 true] 2:a=Admit[main 4-6 [] @1 true]",
		},
		"copies, the last one not": {
			question: fit.Question{Pods: []*v1.Pod{pod("a", "main cpu=3")}, Copies: 3},
			want: "fits=false 2/3 1:a=Admit[main 1-3 [] @0 true] 2:a=Admit[main 4-6 [] @1 true] " +
				"3:a=RejectUnexpectedAdmissionError",
		},
		"the most": {
			question: fit.Question{Pods: []*v1.Pod{pod("a", "main cpu=3")}, Copies: 100,
				Most: true},
			want: "fits=true 2/100 1:a=Admit[main 1-3 [] @0 true] 2:a=Admit[main 4-6 [] @1 true] " +
				"3:a=RejectUnexpectedAdmissionError",
		},
		"the most is none": {
			question: fit.Question{Pods: []*v1.Pod{pod("a", "main cpu=8")}, Copies: 100,
				Most: true},
			want: "fits=false 0/100 1:a=RejectUnexpectedAdmissionError",
		},
		"no plugin": {
			question: fit.Question{Pods: []*v1.Pod{pod("a", "main example.com/gpu=1")}},
			want:     "fits=false 0/1 1:a=WaitWaitingForDevicePlugin",
		},
		"no plugin and no patience": {
			args:     []string{"--device-admission-wait=0"},
			question: fit.Question{Pods: []*v1.Pod{pod("a", "main example.com/gpu=1")}},
			want:     "fits=false 0/1 1:a=RejectOutOfexample.com/gpu",
		},
		"beside the pods of a state": {
			state:    held,
			question: fit.Question{Pods: []*v1.Pod{pod("a", "main cpu=1")}},
			want:     "fits=true 1/1 1:a=Admit[main 4 [] @1 true]",
		},
		"no pods": {want: "fits=true 1/1"},
	} {
		t.Run(name, func(t *testing.T) {
			a := place(t, offline(t, tt.inventory, tt.state, tt.args...), tt.question)
			if got := brief(a); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// The configuration affects the answer as it affects the agent.
func TestPlaceFollowsTheConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 1
topologyManagerPolicy: restricted
topologyManagerScope: pod
`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := offline(t, devicemanager.Inventory{}, allocation.State{}, "--config", file)
	torn := pod("torn", "a cpu=2", "b cpu=2")
	a := place(t, s, fit.Question{Pods: []*v1.Pod{torn}, Copies: 2})
	if got, want := brief(a), "fits=false 1/2 1:torn=Admit[a 4-5 [] @1 true][b 6-7 [] @1 true] "+
		"2:torn=RejectTopologyAffinityError"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	r := a.Pods[0].Record
	if r.Rules.Policy != "restricted" || r.Rules.Scope != "pod" || !r.Subject.DryRun {
		t.Errorf("decided under %s, dry run %v", r.Rules, r.Subject.DryRun)
	}
	small := fit.Question{Pods: []*v1.Pod{pod("small", "main cpu=100m")}, Copies: 2}
	if a := place(t, s, small); a.Copies != 1 || a.Pods[1].Record.Reason != "OutOfpods" {
		t.Errorf("beyond maxPods: %s", brief(a))
	}
}

// A cancelled question leaves the snapshot unchanged.
func TestPlaceGivesUp(t *testing.T) {
	s := offline(t, devicemanager.Inventory{}, allocation.State{})
	q := fit.Question{Pods: []*v1.Pod{pod("a", "main cpu=3")}, Copies: 2}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := fit.Place(ctx, s, q); !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "place copy 1 of 2") {
		t.Errorf("after its end: %v", err)
	}
	for range 2 {
		if a := place(t, s, q); a.Copies != 2 {
			t.Errorf("asked again: %s", brief(a))
		}
	}
}

// A plugin's preference is followed if plugins are asked, and otherwise mentioned.
func TestPlaceAsksPlugins(t *testing.T) {
	s := offline(t, gpus(true, 0, 0), allocation.State{})
	q := fit.Question{Pods: []*v1.Pod{pod("a", "main example.com/gpu=1")}}
	a := place(t, s, q)
	if p := a.Pods[0]; len(p.Notes) != 1 ||
		!strings.Contains(p.Text, "\nNote: the device plugin of example.com/gpu prefers some "+
			"devices over others and was not asked") {
		t.Errorf("not asked: %q\n%s", p.Notes, p.Text)
	}
	q.Ask = func(ask allocation.Ask) ([]string, error) { return []string{"gpu-1"}, nil }
	a = place(t, s, q)
	got := a.Pods[0].Containers[0].Devices["example.com/gpu"]
	if !slices.Equal(got, []string{"gpu-1"}) || len(a.Pods[0].Notes) > 0 {
		t.Errorf("asked: %v, %q", got, a.Pods[0].Notes)
	}
}

// livePlugins are the plugins of a running agent.
type livePlugins struct{ inventory devicemanager.Inventory }

func (p livePlugins) Inventory() devicemanager.Inventory { return p.inventory }

func (livePlugins) Preferred(context.Context, devicemanager.PreferredRequest) ([]string, error) {
	return nil, errors.New("has none")
}

func (livePlugins) Allocate(context.Context, string, []string) (
	*pluginapi.ContainerAllocateResponse, error) {
	return &pluginapi.ContainerAllocateResponse{}, nil
}

// On a running node, what its pods hold is taken, and each question sees the present state.
func TestPlaceOnALiveNode(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		queue, stop := live(t, dir, gpus(false, 0, 1))
		defer stop()
		ask := func(want string) {
			t.Helper()
			s, err := queue.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			a := place(t, s,
				fit.Question{Pods: []*v1.Pod{pod("b", "main cpu=2 example.com/gpu=2")}})
			if got := brief(a); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		}
		ask("fits=true 1/1 1:b=Admit[main 1-2 [gpu-0 gpu-1] @0-1 false]")
		queue.Submit(pod("a", "main cpu=2 example.com/gpu=1"), false)
		synctest.Wait()
		ask("fits=false 0/1 1:b=RejectUnexpectedAdmissionError")
		queue.Release("a")
		synctest.Wait()
		ask("fits=true 1/1 1:b=Admit[main 1-2 [gpu-0 gpu-1] @0-1 false]")
	})
}

// live returns the queue of a running node on twoNodes' machine.
func live(t *testing.T, dir string, inventory devicemanager.Inventory) (
	*admission.Queue, func()) {
	t.Helper()
	return liveTelling(t, dir, inventory, func(report.Result) {})
}

// liveTelling is live, and has tell told of outcomes.
func liveTelling(t *testing.T, dir string, inventory devicemanager.Inventory, tell func(report.Result)) (
	*admission.Queue, func()) {
	t.Helper()
	nodes := []topology.Node{{ID: 0, MemoryBytes: 16 << 30}, {ID: 1, MemoryBytes: 16 << 30}}
	m := topologytest.Machine(t, nodes, 8, func(c *topology.CPU) { c.Node = topology.NodeID(c.ID / 4) })
	static, err := cpumanager.NewStatic(m, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	hardware := machine.Hardware{
		Machine: m, CPUs: static, Allocatable: nodestatus.Allocatable(m, nodestatus.Reservation{MaxPods: 10}),
	}
	queue := admission.New(admission.Config{
		Facts: admission.Facts{Hardware: func() machine.Hardware { return hardware }},
		Rules: topology.Rules{Policy: topology.None, Scope: topology.ContainerScope},
		Store: store, Plugins: livePlugins{inventory}, BootID: "boot",
		Outcomes: admission.Outcomes{Report: tell},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- store.Run(ctx) }()
	go func() { done <- queue.Run(ctx) }()
	return queue, func() {
		cancel()
		<-done
		<-done
	}
}

// The JSON of a pod is one object that starts with its record, and can be read again.
func TestPodJSON(t *testing.T) {
	s := offline(t, devicemanager.Inventory{}, allocation.State{})
	for _, one := range []*v1.Pod{pod("fits", "a cpu=2"), pod("big", "a cpu=2000")} {
		p := place(t, s, fit.Question{Pods: []*v1.Pod{one}}).Pods[0]
		record, _ := json.Marshal(p.Record)
		begins := strings.TrimSuffix(string(record), "}") + `,"copy":1,`
		got, err := json.Marshal(p)
		if err != nil || !strings.HasPrefix(string(got), begins) {
			t.Errorf("%s: %s, %v; want %s...", one.Name, got, err, begins)
		}
		var back fit.Pod
		err = json.Unmarshal(got, &back)
		if again, _ := json.Marshal(back); err != nil || string(again) != string(got) {
			t.Errorf("%s: read as %s, %v; want %s", one.Name, again, err, got)
		}
	}
}
