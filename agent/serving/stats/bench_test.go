package stats

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/agent/storage/localstorage"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim/simtest"
	"github.com/numalet/numalet/cri"
)

// fullNode is a node with 110 pods of two containers; a simulated runtime reports them over its
// socket. All pods share one cgroup of the machine.
func fullNode(b *testing.B) *Collector {
	b.Helper()
	client := simtest.Connect(b, simtest.Start(b, crisim.Config{Images: []string{"sim.local/app"}}))
	for i := range 110 {
		uid := fmt.Sprintf("uid-%d", i)
		labels := map[string]string{cri.LabelPodUID: uid, cri.LabelPodNamespace: "default",
			cri.LabelPodName: fmt.Sprintf("pod-%d", i)}
		config := &runtimeapi.PodSandboxConfig{Labels: labels,
			Metadata: &runtimeapi.PodSandboxMetadata{
				Name: labels[cri.LabelPodName], Namespace: "default", Uid: uid,
			}}
		sandbox, err := client.Runtime().RunPodSandbox(b.Context(), config, "")
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range []string{"main", "side"} {
			id, err := client.Runtime().CreateContainer(b.Context(), sandbox,
				&runtimeapi.ContainerConfig{Labels: labels,
					Metadata: &runtimeapi.ContainerMetadata{Name: name},
					Image:    &runtimeapi.ImageSpec{Image: "sim.local/app"}}, config)
			if err == nil {
				err = client.Runtime().StartContainer(b.Context(), id)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	running, err := client.Pods(b.Context())
	if err != nil || len(running) != 110 {
		b.Fatalf("%d pods, %v", len(running), err)
	}
	groups, proc := machine(b)
	groups.Paths = func(types.UID) (cgroups.PodPaths, error) {
		return cgroups.PodPaths{Pod: "/kubepods/podu1"}, nil
	}
	c, err := New(Config{Node: "n1", Runtime: client, CPUs: func() CPUs { return CPUs{} },
		Running: func() []cri.Pod { return running }, Groups: groups, Proc: proc,
		Disks: DisksConfig{Root: b.TempDir(), Pods: func() map[types.UID]localstorage.Pod { return nil }}})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// BenchmarkScrape measures each answer, and the reading that answers within a second share. It
// includes the simulated runtime, which runs in the same process.
func BenchmarkScrape(b *testing.B) {
	c := fullNode(b)
	r, err := c.read(b.Context(), reading{})
	if err != nil {
		b.Fatal(err)
	}
	run := func(name string, what func() int) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			bytes := 0
			for b.Loop() {
				bytes = what()
			}
			b.ReportMetric(float64(bytes), "bytes")
		})
	}
	run("reading", func() int {
		next, err := c.read(context.Background(), r)
		if err != nil {
			b.Fatal(err)
		}
		return len(next.Pods)
	})
	run("resource", func() int { return len(resourceMetrics(r.Snapshot, false)) })
	run("summary", func() int {
		text, err := json.Marshal(Summary(r.Snapshot, Usage{}))
		if err != nil {
			b.Fatal(err)
		}
		return len(text)
	})
	run("cadvisor from cgroups", func() int {
		return len(cadvisorMetrics(cadvisorInput{Snapshot: r.Snapshot,
			groups: c.readGroups(r.Snapshot, true)}))
	})
	run("cadvisor from the runtime", func() int {
		m, err := c.cfg.Runtime.Metrics(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		return len(cadvisorMetrics(cadvisorInput{Snapshot: r.Snapshot, runtime: m,
			groups: c.readGroups(r.Snapshot, false)}))
	})
}
