package agent

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim/simtest"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/test/scratch"
)

// standalone is the configuration of an agent that is in no cluster, on a simulated runtime, and that leaves the
// machine alone.
func standalone(t *testing.T, settings string, flags ...string) *config.Config {
	t.Helper()
	dir := scratch.Dir(t)
	runtime := simtest.Start(t, crisim.Config{Images: []string{"sim.local/run", "sim.local/exit:0"}})
	write(t, dir, "config.yaml", `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: `+runtime.Endpoint()+`
podLogsDir: `+filepath.Join(dir, "logs")+`
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
`+settings)
	cfg, err := config.FromArgs(append(flags, "--config="+filepath.Join(dir, "config.yaml"), "--root-dir="+filepath.Join(dir, "root"),
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

// manifest returns the manifest of a pod with one container; without limits it has none.
func manifest(name, image, limits string) string {
	return "{apiVersion: v1, kind: Pod, metadata: {name: " + name + "}, spec: {restartPolicy: Never, " +
		"containers: [{name: main, image: " + image + ", resources: {limits: {" + limits + "}}}]}}"
}

// write writes a file of a folder.
func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// awaitPods waits until these are the agent's pods with their phases.
func awaitPods(ctx context.Context, t *testing.T, a *Agent, want ...string) {
	t.Helper()
	changed := mailbox.Subscribe(a.pods.Changes())
	for {
		var are []string
		for _, pod := range a.Pods() {
			are = append(are, pod.Name+" "+string(pod.Status.Phase))
		}
		slices.Sort(are)
		if slices.Equal(are, want) {
			return
		}
		if !await.On(ctx, changed) {
			t.Fatalf("the pods are %q, want %q", are, want)
		}
	}
}

// awaitFree waits until all but that many CPUs are free.
func awaitFree(ctx context.Context, t *testing.T, a *Agent, taken int) {
	t.Helper()
	changed := mailbox.Subscribe(a.placement.Store.Changes())
	for {
		supply, err := a.Free(ctx)
		if err == nil && len(supply) == 1 && supply[0].Free == supply[0].Total-taken {
			return
		}
		if err != nil || !await.On(ctx, changed) {
			t.Fatalf("free are %+v, %v", supply, err)
		}
	}
}

// An agent that is in no cluster has these goroutines, runs the pods of a folder and of a URL, knows what its
// commands show of them, and ends with its context. The next agent adopts what runs; if it cannot write that down,
// it ends.
func TestStandalone(t *testing.T) {
	url := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, manifest("served", "sim.local/run", ""))
	}))
	defer url.Close()
	folder := t.TempDir()
	const pinned = `cpu: "2", memory: 64Mi`
	write(t, folder, "pinned.yaml", manifest("pinned", "sim.local/run", pinned))
	write(t, folder, "once.yaml", manifest("once", "sim.local/exit:0", pinned))
	write(t, folder, "brief.yaml", manifest("brief", "sim.local/run", ""))
	write(t, folder, "bad.yaml", "none")
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	cfg := standalone(t, "staticPodPath: "+folder+"\nstaticPodURL: "+url.URL)
	a, err := New(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	checkParts(t, a.run, "", "")
	checkAligned(t, a, 0)
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- a.Run(running) }()
	awaitPods(ctx, t, a, "brief-node Running", "once-node Succeeded", "pinned-node Running", "served-node Running")
	checkAligned(t, a, 2)
	if err := os.Remove(filepath.Join(folder, "brief.yaml")); err != nil {
		t.Fatal(err)
	}
	awaitPods(ctx, t, a, "once-node Succeeded", "pinned-node Running", "served-node Running")
	if rows := a.Placements(); len(rows) != 3 || rows[1].Pod != "pinned-node" || rows[1].CPUs == "" {
		t.Errorf("placed is %+v", rows)
	}
	if wrong := a.Problems(); len(wrong) != 1 || filepath.Base(wrong[0].Name) != "bad.yaml" {
		t.Errorf("wrong is %+v", wrong)
	}
	awaitFree(ctx, t, a, 2) // one has given back what it had
	if short := a.Pressure(); short != nil {
		t.Errorf("the node is short of %q", short)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	state := filepath.Join(cfg.RootDir, store.FileName)
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	if a, err = New(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(state, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := a.Run(ctx); err == nil || !strings.Contains(err.Error(), "record the rebuilt assignments") {
		t.Errorf("with a state that cannot be written the agent ends with %v", err)
	}
}

// checkAligned fails unless that many containers are counted that got exclusive CPUs, all of them whole cores.
func checkAligned(t *testing.T, a *Agent, n float64) {
	t.Helper()
	families, err := a.host.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			counted[name] = m.GetCounter().GetValue()
		}
	}
	for _, name := range []string{"kubelet_cpu_manager_pinning_requests_total",
		"kubelet_container_aligned_compute_resources_count physical_cpu container"} {
		if got, is := counted[name]; !is || got != n {
			t.Errorf("%s is %v, %t, want %v", name, got, is, n)
		}
	}
}

// The goroutines of a node in a cluster are there besides, before the API server has answered.
func TestClustered(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "kubeconfig", `{apiVersion: v1, kind: Config, current-context: c,
 contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: t}}],
 clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]}`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a, err := New(ctx, standalone(t, "", "--kubeconfig="+filepath.Join(dir, "kubeconfig"), "--dra-cpu"))
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
