package playground

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// The node finds the ordered share of its memory in use, or what there is, and what was measured stays as
// it is.
func TestMemoryOrder(t *testing.T) {
	measured := statsapi.MemoryStats{AvailableBytes: new(uint64(300)), WorkingSetBytes: new(uint64(700))}
	for _, test := range []struct{ used, usual, want float64 }{
		{0, 0, 700}, {0, 0.4, 400}, {0.95, 0.4, 950}, {1, 0, 1000},
	} {
		o := &orders{usual: test.usual}
		if err := o.memory(MemoryOrder{test.used}); err != nil {
			t.Fatal(err)
		}
		node := statsapi.NodeStats{Memory: &measured}
		o.play(&node)
		if used, left := *node.Memory.WorkingSetBytes, *node.Memory.AvailableBytes; float64(used) != test.want ||
			used+left != 1000 {
			t.Errorf("%+v: %d in use, %d left", test, used, left)
		}
	}
	if *measured.WorkingSetBytes != 700 {
		t.Error("what was measured is overwritten")
	}
	(&orders{usual: 1}).play(&statsapi.NodeStats{}) // nothing was measured
	for _, used := range []float64{-0.1, 1.1} {
		if (&orders{}).memory(MemoryOrder{used}) == nil {
			t.Errorf("%v is taken", used)
		}
	}
	for text, want := range map[string]float64{"95%": 0.95, "0.5%": 0.005, "100%": 1} {
		if got, err := ParseShare(text); err != nil || got != want {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"95", "0%", "101%", "much", "-1%", "NaN%"} {
		if _, err := ParseShare(text); err == nil {
			t.Errorf("%s is a share", text)
		}
	}
}

// The only playground is found; none, or several, are said.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for _, test := range []struct{ make, want string }{
		{"", "no playground runs in " + dir}, {"numalet-1", ""}, {"numalet-2", "name one of them with --dir: "},
	} {
		if test.make != "" {
			if err := os.Mkdir(filepath.Join(dir, test.make), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, test.make, OrdersSocket), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Find("")
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("with %q: %v", test.make, err)
		}
	}
	c, err := Find(filepath.Join(dir, "numalet-3"))
	if err == nil {
		err = c.Order(t.Context(), "/memory", MemoryOrder{0.5})
	}
	if err == nil || !strings.Contains(err.Error(), "does not run any more") {
		t.Errorf("of a playground that has ended: %v", err)
	}
}
