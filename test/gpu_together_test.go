package test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// Pods that have waited for the GPU plugin, as after a reboot, get the GPUs that they would get one
// by one: GPUs that are connected, and shares of unused GPUs.
func TestPodsThatWaitedForTheGPUPlugin(t *testing.T) {
	t.Parallel()
	shared := "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 8}]}}"
	for _, test := range []struct {
		machine, file string
		counts        []int
		want          []string
	}{
		{machine: "h100nvl8", counts: []int{2, 2, 2, 2}, want: []string{"0-2", "1-3", "4-6", "5-7"}},
		{machine: "dgx1", counts: []int{2, 2, 4}, want: []string{"0-3", "1-2", "4-5-6-7"}},
		{machine: "two", file: shared, counts: []int{1, 1, 1, 1, 1, 1, 1, 1},
			want: []string{"0", "0", "0", "0", "1", "1", "1", "1"}},
	} {
		t.Run(test.machine, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t)
			n.Settings["topologyManagerPolicy"] = "none"
			n.Start()
			for i, count := range test.counts {
				name := fmt.Sprint("p", i)
				n.Pod(name, limited(name, fmt.Sprintf("cpu: 100m, nvidia.com/gpu: %d", count)))
			}
			n.Eventually("all pods wait for the plugin", func() error {
				pods, err := n.Pods()
				for _, p := range pods {
					if err == nil && p.Status.Reason != "WaitingForDevicePlugin" {
						err = fmt.Errorf("%s: %s", p.Name, p.Status.Reason)
					}
				}
				if err == nil && len(pods) != len(test.counts) {
					err = fmt.Errorf("%d pods", len(pods))
				}
				return err
			})
			machine := test.machine
			if machine == "two" {
				machine = filepath.Join(n.Dir, "two.yaml")
				if err := os.WriteFile(machine, []byte(twoGPUs), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			args := []string{"--mock=" + machine}
			if test.file != "" {
				file := filepath.Join(n.Dir, "gpus.yaml")
				if err := os.WriteFile(file, []byte(test.file), 0o600); err != nil {
					t.Fatal(err)
				}
				args = append(args, "--config-file="+file)
			}
			gpuPlugin(t, n, args...)
			var got []string
			for i := range test.counts {
				n.AwaitPhase(fmt.Sprintf("p%d-node", i), v1.PodRunning)
				row := placementOf(t, n, fmt.Sprintf("p%d-node/main", i))
				got = append(got, gpusOf(row.Devices[nvidiaGPU]))
			}
			slices.Sort(got) // the order of arrival does not matter
			if !slices.Equal(got, test.want) {
				t.Errorf("%v have %v, want %v", test.counts, got, test.want)
			}
		})
	}
}

// Parts of GPUs are packed for pods that are decided on together, after a start of the agent, as for
// pods that come one by one, in whatever order.
func TestPodsThatWaitedForPartsOfGPUs(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["topologyManagerPolicy"] = "none"
	n.Start()
	_, do := gpuPlugin(t, n, "--mig-strategy=mixed")
	for gpu, count := range []int{7, 2, 3} {
		do(fmt.Sprintf("mig %d on", gpu))
		do(fmt.Sprintf("divide %d 1g.10gb=%d", gpu, count))
	}
	const parts = "nvidia.com/mig-1g.10gb"
	n.Eventually("all parts are offered", func() error {
		if text := entryOf(n, "/plugins", parts); !strings.Contains(text, "devices:12") {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, count := range []int{2, 3, 7} {
		name := fmt.Sprint("p", count)
		n.Pod(name, limited(name, fmt.Sprintf("cpu: 100m, %s: %d", parts, count)))
	}
	n.Start()
	for count, gpu := range map[int]string{7: "MIG-00000000-", 2: "MIG-00000001-", 3: "MIG-00000002-"} {
		name := fmt.Sprintf("p%d-node", count)
		n.AwaitPhase(name, v1.PodRunning)
		ids := placementOf(t, n, name+"/main").Devices[parts]
		if slices.ContainsFunc(ids, func(id string) bool { return !strings.HasPrefix(id, gpu) }) {
			t.Errorf("the pod of %d has %q, want parts of %s", count, ids, gpu)
		}
	}
}

const twoGPUs = `name: two
driver: 570.172.08
model: {name: NVIDIA L4, device: "0x27b8"}
gpus:
- {bus: "0000:16:00.0", at: 0/0/0}
- {bus: "0000:18:00.0", at: 0/0/0}
host: {sockets: 1, nodesPerSocket: 1, coresPerNode: 8, threadsPerCore: 1, memoryPerNode: 64Gi}
`

// gpusOf returns the numbers of the mocked GPUs, or of the GPUs of shares.
func gpusOf(ids []string) string {
	var out []string
	for _, id := range ids {
		number, _, _ := strings.Cut(strings.TrimPrefix(id, "GPU-"), "-")
		out = append(out, strings.TrimLeft(number[:7], "0")+number[7:])
	}
	return strings.Join(out, "-")
}
