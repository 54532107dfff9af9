package allocation

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// What a pod was allocated is in the state file, also of one that holds nothing else, and is no holding.
func TestResourcesAreRecorded(t *testing.T) {
	r := podspec.ResourcesOf(podtest.New("a", podtest.Containers("main cpu=500m memory=1Gi", "side~ cpu=10m"),
		podtest.Resources("cpu=2")))
	for name, pod := range map[string]Pod{
		"resized":     {UID: "a", BootID: "b", Containers: map[string]Container{}, Resources: &r},
		"as admitted": {UID: "a", BootID: "b", Containers: map[string]Container{}},
	} {
		raw, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		var got Pod
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		if (got.Resources == nil) != (pod.Resources == nil) || !got.IsEmpty() || len(HoldingsOf(got)) > 0 {
			t.Errorf("%s: %s is read as %+v", name, raw, got)
		}
		if again, _ := json.Marshal(got); !reflect.DeepEqual(again, raw) {
			t.Errorf("%s: written again it is %s, was %s", name, again, raw)
		}
	}
}
