package test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// TestDevicesChosenByAScheduler: pods of a scheduler that the node names get the devices that an
// annotation lists, with their CPUs beside them; others' annotations mean nothing.
func TestDevicesChosenByAScheduler(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["topologyManagerPolicy"] = "single-numa-node"
	n.Args = append(n.Args, "--devices-chosen-by=other,default/chooser")
	n.Start()
	n.Plugin("example.com/nic", "--devices=8", "--nodes=0-3")
	const two = "cpu: 2, memory: 1Gi, example.com/nic: 2"
	pod := func(name, scheduler, ids string) {
		text := strings.Replace(limited(name, two), "\nspec:\n", "\n  annotations: "+
			"{example.com/nic_container-main: \""+ids+"\"}\nspec:\n  schedulerName: "+scheduler+"\n", 1)
		n.Pod(name, text)
	}
	pod("chosen", "chooser", "nic-7, nic-6")
	n.AwaitPhase("chosen-node", v1.PodRunning)
	pod("unchosen", "default-scheduler", "nic-2,nic-3")
	n.AwaitPhase("unchosen-node", v1.PodRunning)
	for name, ids := range map[string]string{
		"apart": "nic-2,nic-4", "taken": "nic-6,nic-7", "none": "nic-77,nic-78", "few": "nic-2",
		"odd": "nic-3,,nic-4",
	} {
		pod(name, "chooser", ids)
		n.AwaitPhase(name+"-node", v1.PodFailed)
	}
	pods, err := n.Pods()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := n.Placements()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"chosen": "nic-6,nic-7", "unchosen": "nic-0,nic-1"} {
		row := rows[name+"-node/main"]
		if got := strings.Join(row.Devices["example.com/nic"], ","); got != want || row.Aligned == nil || !*row.Aligned {
			t.Errorf("%s has %+v, want %s", name, row, want)
		}
	}
	text, err := explainPod(t, n, "apart-node")
	if err != nil || !strings.Contains(text, "those that were chosen are on nodes 1-2") {
		t.Errorf("%v: %s", err, text)
	}
	for name, want := range map[string][2]string{
		"apart": {"TopologyAffinityError", "annotation example.com/nic_container-main chooses devices " +
			"of NUMA nodes 1-2"},
		"taken": {"ChosenDeviceUnavailable", `chooses device "nic-6", and another pod has it`},
		"none":  {"ChosenDeviceUnavailable", `chooses device "nic-77", and its device plugin lists none`},
		"few":   {"DeviceChoiceInvalid", "1 devices are named, and container main asks for 2"},
		"odd":   {"DeviceChoiceInvalid", "has an empty device id"},
	} {
		s := pods[name+"-node"].Status
		if s.Reason != want[0] || !strings.Contains(s.Message, want[1]) {
			t.Errorf("%s: %s, %s; want %q", name, s.Reason, s.Message, want)
		}
	}
}
