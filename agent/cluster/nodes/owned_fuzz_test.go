package nodes

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// FuzzOwned: whatever the file has, the node keeps what no device plugin can offer, resources that
// the file does not name, and none of ours that are dead; the file that is written is read the same.
func FuzzOwned(f *testing.F) {
	for _, text := range []string{
		`["x.io/gpu"]`, `["cpu","memory","pods","hugepages-2Mi","ephemeral-storage"]`, `[]`, `null`, ``,
		`{"x.io/gpu":true}`, `["x.io/gpu","x.io/gpu",""]`, `[null,"\u0000"]`, `["others.io/thing"]`,
		`["x.io/gpu"`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		root := t.TempDir()
		path := filepath.Join(root, OwnedFile)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := OpenOwned(root, 0)
		if _, stat := os.Stat(path); (err == nil) != (stat == nil) {
			t.Errorf("%q: %v, and the file: %v", text, err, stat)
		}
		named := len(o.names)
		time.Sleep(time.Nanosecond)
		d := o.Devices(offering("new.io/gpu"))
		if len(d.Dead) > named || slices.Contains(d.Dead, "new.io/gpu") {
			t.Errorf("%q: dead are %q", text, d.Dead)
		}
		has := v1.ResourceList{"others.io/thing": resource.MustParse("3")}
		ours := v1.ResourceList{}
		for _, name := range []v1.ResourceName{"cpu", "memory", "pods", "hugepages-2Mi"} {
			ours[name] = resource.MustParse("7")
		}
		status := nodestatus.Status(v1.NodeStatus{Capacity: has, Allocatable: has}, nodestatus.Facts{
			Capacity: ours, Allocatable: ours, Devices: d,
		}, metav1.Now())
		for name, want := range ours {
			if got := status.Capacity[name]; !got.Equal(want) {
				t.Errorf("%q: the node has %v of %s", text, got.String(), name)
			}
		}
		_, there := status.Capacity["others.io/thing"]
		if dead := slices.Contains(d.Dead, "others.io/thing"); there == dead {
			t.Errorf("%q: others' resource is there: %v, and dead: %v", text, there, dead)
		}
		again, err := OpenOwned(root, 0)
		if err != nil {
			t.Fatalf("%q: written as what is not read: %v", text, err)
		}
		if got := again.Devices(devicemanager.Inventory{}); len(got.Dead) != len(d.Dead)+1 {
			t.Errorf("%q: then dead are %q, before %q", text, got.Dead, d.Dead)
		}
	})
}
