package store

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/allocationtest"
	"github.com/numalet/numalet/agent/placement/allocation/handover"
)

// Agents on other nodes, older and newer ones, have files and annotations with just these bytes.
func TestTheFormatStays(t *testing.T) {
	const (
		initText = `{"name":"init","cpus":"2-3","memory":[{"nodes":"0-1","resource":"hugepages-2Mi",` +
			`"bytes":0},{"nodes":"0-1","resource":"memory","bytes":5368709120}]}`
		mainText = `{"name":"main","cpus":"2-3,18-19","devices":[{"resource":"example.com/gpu",` +
			`"ids":["gpu-0","gpu-1"],"nodes":["1",""],"answer":"AQA="},{"resource":"example.com/nic",` +
			`"ids":["nic-0"],"answer":""}]}`
		file = `{"version":4,"checksum":532293944,"data":{"generation":1,"pods":[{"uid":"a",` +
			`"namespace":"default","name":"train-a","bootID":"boot-1","containers":[` + initText + `,` +
			mainText + `]}]}}` + "\n"
	)
	pod := allocationtest.Pod("a")
	if raw, err := encode(allocationtest.State(pod)); err != nil || string(raw) != file {
		t.Errorf("the file is %v\n%s, want\n%s", err, raw, file)
	}
	read, err := decode([]byte(file))
	if diff := cmp.Diff(map[types.UID]allocation.Pod{"a": pod}, read.Pods, allocationtest.Same); diff != "" || err != nil {
		t.Errorf("read: %v (-want +got):\n%s", err, diff)
	}
	for name, want := range map[string]string{"init": initText, "main": mainText} {
		if text, err := handover.Describe(name, pod.Containers[name]); err != nil || text != want {
			t.Errorf("the annotation is %v\n%s, want\n%s", err, text, want)
		}
	}
}
