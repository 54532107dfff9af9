package nodestatus

import (
	"encoding/json"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FuzzStatus: whatever others wrote to the node's status, the new status has the facts and does not
// change again.
func FuzzStatus(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"capacity":{"cpu":"-1","x.io/gpu":"1e30","hugepages-0":"1"},"allocatable":null}`,
		`{"conditions":[{"type":"Ready","status":"Unknown"},{"type":"Ready"},{"type":""}],
"addresses":[{"type":"InternalIP"},{}],"images":[{"names":null}],"volumesInUse":["a"]}`,
		`{"nodeInfo":{"bootID":"b2"},"allocatable":{"foreign.io/x":"9"},"capacity":{"foreign.io/x":"5"}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var there v1.NodeStatus
		if json.Unmarshal(data, &there) != nil {
			return
		}
		now, facts := metav1.Unix(1000, 0), facts()
		once := Status(there, facts, now)
		if Changed(once, Status(*once.DeepCopy(), facts, now)) {
			t.Errorf("%s becomes %+v, and changes again", data, once)
		}
		for name, amount := range facts.Allocatable {
			if has := once.Allocatable[name]; has.Cmp(amount) != 0 {
				t.Errorf("%s: there are %s of %s, want %s", data, has.String(), name, amount.String())
			}
		}
		Events("n", there, once)
	})
}
