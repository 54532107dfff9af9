package agent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/testutil"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim/simtest"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/test/scratch"
)

// standalone is the configuration of an agent that is in no cluster, on a simulated runtime, and that leaves the
// machine alone.
func standalone(t *testing.T, manifests string, flags ...string) *config.Config {
	t.Helper()
	dir := scratch.Dir(t)
	runtime := simtest.Start(t, crisim.Config{Images: []string{"sim.local/run"}})
	file := filepath.Join(dir, "config.yaml")
	text := `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: ` + manifests + `
containerRuntimeEndpoint: ` + runtime.Endpoint() + `
podLogsDir: ` + filepath.Join(dir, "logs") + `
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
systemReserved: {cpu: "1"}
enforceNodeAllocatable: [none]
cgroupsPerQOS: false
failSwapOn: false
failCgroupV1: false
makeIPTablesUtilChains: false
enableServer: false
healthzPort: 0
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 1Mi}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.FromArgs(append(flags, "--config="+file, "--root-dir="+filepath.Join(dir, "root"),
		"--hostname-override=node", "--topology-from=fixture:playground"))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// standaloneFirst and standaloneThen are the goroutines of such an agent.
const (
	standaloneFirst = `CSI volumes, Pods API, admission, assignment store, device plugins, disks that no pod uses,
drivers of CSI volumes, drivers of resource claims, endings, health of drivers' devices, http server, kept statuses,
local storage, news of drivers, notices of pods, pod resources, pod workers, pods that wait for drivers, probes,
results of probes, runtime observer, statistics, tracing, watchdog`
	standaloneThen = `addresses, addresses of pods, checkpoints, container runtime status, dead containers, deadlines,
evictions, failed devices, growth of volumes, housekeeping, limits of local storage, log rotation, machine,
memory as the kernel tells, oom watcher, pod sources, released devices, resources, room of volumes, shutdown, syncLoop,
systemd, unused images`
)

// checkParts fails unless the goroutines of a standalone agent run, and these besides.
func checkParts(t *testing.T, got order, first, then string) {
	t.Helper()
	for want, parts := range map[string][]part.Part{
		standaloneFirst + first: got.first, standaloneThen + then: got.then,
	} {
		names := strings.Split(strings.ReplaceAll(want, "\n", " "), ", ")
		var have []string
		for _, p := range parts {
			have = append(have, p.Name)
		}
		slices.Sort(names)
		slices.Sort(have)
		if diff := cmp.Diff(names, have); diff != "" {
			t.Errorf("there run (-want +got):\n%s", diff)
		}
	}
}

// An agent that is in no cluster has these goroutines, runs the pods of a folder, and knows of them what its
// commands show. It ends with its context.
func TestStandalone(t *testing.T) {
	manifests := t.TempDir()
	for name, text := range map[string]string{"good.yaml": `{apiVersion: v1, kind: Pod, metadata: {name: pinned}, spec: {
 containers: [{name: main, image: sim.local/run, resources: {limits: {cpu: "2", memory: 64Mi}}}]}}`, "bad.yaml": "none"} {
		if err := os.WriteFile(filepath.Join(manifests, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a, err := New(ctx, standalone(t, manifests))
	if err != nil {
		t.Fatal(err)
	}
	checkParts(t, a.run, "", "")
	changed := mailbox.Subscribe(a.pods.Changes())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	for {
		if all := a.Pods(); len(all) == 1 && all[0].Status.Phase == v1.PodRunning {
			break
		}
		if !await.On(ctx, changed) {
			t.Fatal("the pod does not run")
		}
	}
	if rows := a.Placements(); len(rows) != 1 || rows[0].Pod != "pinned-node" || rows[0].CPUs == "" {
		t.Errorf("placed is %+v", rows)
	}
	if wrong := a.Problems(); len(wrong) != 1 || filepath.Base(wrong[0].Name) != "bad.yaml" {
		t.Errorf("wrong is %+v", wrong)
	}
	supply, err := a.Free(ctx)
	if err != nil || len(supply) != 1 || supply[0].Free != supply[0].Total-2 {
		t.Errorf("free are %+v, %v", supply, err)
	}
	if short := a.Pressure(); short != nil {
		t.Errorf("the node is short of %q", short)
	}
	const aligned = `
# HELP kubelet_container_aligned_compute_resources_count [ALPHA] Containers, or pods, whose resources are aligned.
# TYPE kubelet_container_aligned_compute_resources_count counter
kubelet_container_aligned_compute_resources_count{boundary="physical_cpu",scope="container"} 1
kubelet_container_aligned_compute_resources_count{boundary="uncore_cache",scope="container"} 1
# HELP kubelet_cpu_manager_pinning_requests_total [ALPHA] Requests for CPUs of a container's own.
# TYPE kubelet_cpu_manager_pinning_requests_total counter
kubelet_cpu_manager_pinning_requests_total 1
`
	if err := testutil.GatherAndCompare(a.host.Registry, strings.NewReader(aligned),
		"kubelet_container_aligned_compute_resources_count", "kubelet_cpu_manager_pinning_requests_total"); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The goroutines of a node in a cluster are there besides, before the API server has answered.
func TestClustered(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
 clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], users: [{name: u, user: {token: t}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a, err := New(ctx, standalone(t, t.TempDir(), "--kubeconfig="+kubeconfig, "--dra-cpu"))
	if err != nil {
		t.Fatal(err)
	}
	checkParts(t, a.run, `, API server client, CSINode, attached disks, attached volumes, attachments of volumes,
changes of objects, drivers that are gone, mirror pods, objects of pods, pod statuses, resource claims, resource slices,
slices of CPUs, unprepared claims, volumes without records, what pods need, what the API server knows`,
		", NodeResourceTopology, node")
	cancel()
	if err := a.Run(ctx); err != nil {
		t.Error(err)
	}
}
