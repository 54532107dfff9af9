package source

import (
	"encoding/json"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/internal/complaint"
)

// FuzzScreen: whatever an API server sends as a pod, nothing crashes. The names of pods handed out
// can be names of directories, and problems are one line and the same each time.
func FuzzScreen(f *testing.F) {
	for _, text := range []string{
		`{"metadata":{"uid":"u","name":"a","namespace":"b"},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
		`{"metadata":{"uid":"../../x","name":"a","namespace":"b"}}`, `{}`,
		`{"metadata":{"uid":"u","name":"a","namespace":"b"},"spec":{"volumes":[{"name":"v"},{"name":"v",
"hostPath":null,"projected":{"sources":[{"downwardAPI":{"items":[{"path":"..","fieldRef":null}]}}]}}],
"initContainers":[{"name":"c","restartPolicy":"Always"}],"containers":[{"name":"c","env":[{"name":"A",
"valueFrom":{}}],"ports":[{"hostPort":-1}],"resources":{"limits":{"cpu":"-1"}}}]},
"status":{"phase":"Running","conditions":[{}]}}`,
		`{"metadata":{"uid":"u","name":"a\u001b","namespace":"b/c"},"status":{"phase":"Failed"}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pod := &v1.Pod{}
		if json.Unmarshal(data, pod) != nil {
			return
		}
		var reported []complaint.Problem
		screen := NewScreen(nil, func(p complaint.Problem) { reported = append(reported, p) })
		passed := screen.Pass([]*v1.Pod{pod})
		for _, p := range passed {
			if strings.ContainsAny(string(p.UID)+p.Name+p.Namespace, "/\\\x00 ") || p.UID == "" ||
				strings.Trim(string(p.UID), ".") == "" {
				t.Errorf("unsafe: %q %q %q", p.UID, p.Name, p.Namespace)
			}
			if first, again := manifest.Flaw(p, nil), manifest.Flaw(p.DeepCopy(), nil); first != again {
				t.Errorf("%q, and then %q", first, again)
			}
		}
		if len(passed) == 0 && len(reported) == 0 {
			t.Error("it is left out without a word")
		}
		for _, p := range reported {
			if strings.ContainsAny(p.Name+p.Message, "\n\r\x1b") {
				t.Errorf("several lines: %q", p)
			}
		}
	})
}
