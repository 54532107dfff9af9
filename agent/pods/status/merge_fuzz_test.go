package status

import (
	"encoding/json"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/numalet/numalet/topology/podspec"
)

// FuzzMerge: merging again changes nothing, whatever the API server has, so nothing is written
// endlessly. A final phase stays.
func FuzzMerge(f *testing.F) {
	for _, pair := range [][2]string{
		{`{}`, `{"phase":"Running"}`},
		{`{"phase":"Failed","reason":"NodeLost"}`, `{"phase":"Running","conditions":[{"type":"Ready"}]}`},
		{`{"conditions":[{"type":"Ready","status":"True"},{"type":"Ready"},{"type":"x"},{"type":"x"}],
"qosClass":"odd","startTime":"2026-01-02T03:04:05Z"}`, `{"phase":"Failed",
"conditions":[{"type":"Ready","lastTransitionTime":"2026-01-02T03:04:05Z"},{"type":"DisruptionTarget"}]}`},
	} {
		f.Add([]byte(pair[0]), []byte(pair[1]))
	}
	f.Fuzz(func(t *testing.T, there, here []byte) {
		var api, own v1.PodStatus
		if json.Unmarshal(there, &api) != nil || json.Unmarshal(here, &own) != nil {
			return
		}
		once := Merge(api, own)
		if twice := Merge(once, own); !equality.Semantic.DeepEqual(once, twice) {
			t.Errorf("there %s, here %s:\n%+v\nand then\n%+v", there, here, once, twice)
		}
		if podspec.Ended(api.Phase) && once.Phase != api.Phase {
			t.Errorf("%s became %s", api.Phase, once.Phase)
		}
	})
}
